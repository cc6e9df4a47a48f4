// Detects accidental changes of the wire traffic. The messages of every collective with every
// algorithm, for one to five ranks, compressed and not, must equal the files in golden/.
//
// golden/<collective>.txt has each edge's data, by hash, and the results of the ranks. It holds in
// every run, because the messages come over a network in random order.
//
// golden/<collective>_flow.txt has every message of each ordered pair of ranks, with flow control,
// for the longest ops and for several ops at once. It holds if one rank runs at a time. "data
// 0.1-3 early +512" means segments 1 to 3 of edge 0, sent on eager credit. The sender also returns
// 512 bytes of credit that it has consumed.
//
// After an intended change, or with a new algorithm, rewrite the files and review the difference:
//   UPDATE_TRACES=1 build/release/out/engine_test --gtest_filter='*Traces*'
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>

#include "engine/trace_case.h"
#include "support/ranks.h"
#include "support/source_folder.h"
#include "support/stepper.h"
#include "support/trace.h"

namespace ringdist {
namespace {

using Lines = std::vector<std::string>;
constexpr const char* kUpdate =
    "UPDATE_TRACES=1 build/release/out/engine_test --gtest_filter='*Traces*'";
constexpr size_t kShown = 8;  // lines

bool updating() { return std::getenv("UPDATE_TRACES") != nullptr; }

std::string file_name(Collective kind, const std::string& suffix = "") {
  std::string out(collective_name(kind));
  std::ranges::replace(out, '/', '_');
  return out + suffix + ".txt";
}

std::filesystem::path golden() { return source_folder() / "tests/cpp/engine/golden"; }

Lines read(const std::filesystem::path& path) {
  std::ifstream file(path);
  Lines out;
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#')) out.push_back(line);
  return out;
}

void write(const std::filesystem::path& path, const Lines& lines) {
  std::ofstream file(path);
  file << "# Made and compared by tests/cpp/engine/traces_test.cc, which says what this is. To "
          "make it "
       << "anew:\n# " << kUpdate << "\n";
  for (const std::string& line : lines) file << line << "\n";
  ASSERT_TRUE(file.good()) << path;
}

// Returns the title of the case that contains line `at`, and the lines from there on.
std::string excerpt(const Lines& lines, size_t at) {
  std::string out;
  for (size_t i = std::min(at, lines.size()); i-- > 0;)
    if (!lines[i].starts_with(' ')) {
      out = "  (" + lines[i] + ")\n";
      break;
    }
  if (at >= lines.size()) return out + "  nothing more\n";
  for (size_t i = at; i < std::min(at + kShown, lines.size()); ++i) out += "  " + lines[i] + "\n";
  return out;
}

void compare(const std::string& name, const Lines& lines) {
  if (testing::Test::HasFailure()) return;  // the failure of an op is more precise
  const auto path = golden() / name;
  if (updating()) return write(path, lines);
  const Lines expected = read(path);
  if (lines == expected) return;
  const auto at = static_cast<size_t>(std::ranges::mismatch(lines, expected).in1 - lines.begin());
  FAIL() << "golden/" << name << " says otherwise.\nThe file:\n"
         << excerpt(expected, at) << "This run:\n"
         << excerpt(lines, at) << "If that is meant: " << kUpdate;
}

RanksOptions options(const std::string& algorithm, int size, Trace& trace) {
  RanksOptions out;
  out.size = size;
  out.config = {{"algorithm", algorithm}, {"segment_bytes", "4096"}};
  out.network.tap = [&trace](ConstBytes header, ConstBytes payload) { trace.add(header, payload); };
  return out;
}

std::vector<TraceRank> members(const TraceCase& one, int32_t tag) {
  std::vector<TraceRank> out;
  for (int rank = 0; rank < one.what.size; ++rank) out.emplace_back(one, rank, tag);
  return out;
}

void add_block(Lines& lines, const std::string& name, const Lines& block) {
  lines.push_back(name);
  for (const std::string& line : block) lines.push_back("  " + line);
}

void trace_data(const std::string& algorithm, const std::vector<TraceCase>& cases, uint64_t seed,
                Lines& lines) {
  if (cases.empty()) return;
  Trace trace;
  RanksOptions wanted = options(algorithm, cases[0].what.size, trace);
  wanted.network.seed = seed;
  wanted.network.max_delay = std::chrono::microseconds(100);
  Ranks ranks(wanted);
  int32_t tag = 0;
  for (const TraceCase& one : cases) {
    SCOPED_TRACE(one.name());
    std::vector<TraceRank> all = members(one, tag++);
    const uint64_t first = ranks[0].sequence_number() + 1;
    trace.take();
    ranks.run([&](int rank) {
      std::vector<std::shared_ptr<Op>> ops;
      for (OpRequest& request : all[static_cast<size_t>(rank)].requests()) {
        auto op = ranks[rank].submit(std::move(request), /*will_wait=*/false);
        ASSERT_TRUE(op.ok()) << op.error().what();
        ops.push_back(op.value());
      }
      for (const auto& op : ops) ASSERT_FALSE(wait_op(ranks[rank], *op)) << op->error().what();
    });
    Lines block = data_lines(trace.take(), first);
    for (const TraceRank& rank : all) block.push_back(rank.result_line());
    add_block(lines, one.name(), block);
  }
}

// Runs the cases in flight together, in a group of their own with all its credit.
void trace_flow(Ranks& ranks, Trace& trace, const std::string& name,
                const std::vector<TraceCase>& cases, Lines& lines) {
  SCOPED_TRACE(name);
  std::vector<std::vector<TraceRank>> all;
  for (const TraceCase& one : cases) all.push_back(members(one, static_cast<int32_t>(all.size())));
  trace.take();
  const auto group = ranks.another(name);
  Stepper stepper(ranks);
  stepper.meet(group, trace);
  trace.take();
  const uint64_t first = group[0]->sequence_number() + 1;
  stepper.call(group, [&](int rank) {
    std::vector<OpRequest> out;
    for (auto& of_case : all)
      for (OpRequest& request : of_case[static_cast<size_t>(rank)].requests())
        out.push_back(std::move(request));
    return out;
  });
  ASSERT_EQ(stepper.finish(), Lines());
  add_block(lines, name, flow_lines(trace.take(), first));
}

void trace_flow(const std::string& algorithm, const std::vector<TraceCase>& cases, Lines& lines) {
  Trace trace;
  RanksOptions wanted = options(algorithm, cases[0].what.size, trace);
  wanted.network.held = true;
  Ranks ranks(wanted);
  for (const TraceCase& one : cases)
    if (one.many) trace_flow(ranks, trace, one.name(), {one}, lines);
  if (cases.size() > 1 && ranks.size() == 3)
    trace_flow(ranks, trace, cases[0].name() + ", and all others with 3 ranks", cases, lines);
}

class Traces : public testing::TestWithParam<Collective> {};

TEST_P(Traces, DataIsThatOfTheFile) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  Lines lines;
  for (const std::string& algorithm : traced_algorithms(GetParam()))
    for (int size = 1; size <= kMostTracedRanks; ++size)
      trace_data(algorithm, trace_cases(GetParam(), algorithm, size), seed, lines);
  compare(file_name(GetParam()), lines);
}

TEST_P(Traces, FlowIsThatOfTheFile) {
  Lines lines;
  for (const std::string& algorithm : traced_algorithms(GetParam()))
    for (int size = 2; size <= kMostTracedRanks; ++size)
      trace_flow(algorithm, trace_cases(GetParam(), algorithm, size), lines);
  compare(file_name(GetParam(), "_flow"), lines);
}

INSTANTIATE_TEST_SUITE_P(Collectives, Traces, testing::ValuesIn(traced_collectives()),
                         [](const auto& info) {
                           return file_name(info.param).substr(0, file_name(info.param).size() - 4);
                         });

TEST(TracesFiles, AreOfCollectivesThatThereAre) {
  if (updating()) return;
  std::set<std::string> expected;
  for (const Collective kind : traced_collectives())
    for (const char* suffix : {"", "_flow"}) expected.insert(file_name(kind, suffix));
  std::set<std::string> there;
  for (const auto& file : std::filesystem::directory_iterator(golden()))
    there.insert(file.path().filename().string());
  EXPECT_EQ(there, expected);
}

}  // namespace
}  // namespace ringdist
