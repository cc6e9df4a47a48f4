#include "support/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>

#include "base/hash.h"

namespace ringdist {
namespace {

// Offsets of the header fields on the wire, in the order of docs/explanation/flow-control.md. They
// are deliberately not taken from the product's code.
constexpr size_t kType = 0, kEarly = 1, kSource = 8, kDestination = 12, kNonce = 16, kOp = 24,
                 kEdge = 32, kSegment = 36, kCredit = 40, kShortHeader = 48, kLongHeader = 72;
constexpr std::array<const char*, 5> kTypes{"data", "request", "grant", "first grant", "credit"};
constexpr int kData = 0, kCreditOnly = 4;

constexpr int kPerLine = 8;  // messages of a pair per line; a run of data messages counts as one

// Marks the key of a send and its receive, which is the same in every run.
constexpr uint64_t kNamesSend = uint64_t{1} << 63;

template <typename T>
T read(ConstBytes bytes, size_t at) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

// Returns "" for the first op of a trace, "op 2 " for the next, and "(tag 7, send 0) " for a send.
std::string op_text(uint64_t op, uint64_t first) {
  if ((op & kNamesSend) != 0)
    return "(tag " + std::to_string((op & ~kNamesSend) >> 32) + ", send " +
           std::to_string(static_cast<uint32_t>(op)) + ") ";
  return op == first ? "" : "op " + std::to_string(op - first + 1) + " ";
}

std::string pair_text(const TracedMessage& m) {
  return std::to_string(m.source) + ">" + std::to_string(m.destination);
}

// Checks that a message belongs to the one group of the trace, and to no op before it.
void check_names(const TracedMessage& one, const TracedMessage& first, uint64_t first_op) {
  EXPECT_EQ(one.nonce, first.nonce);
  EXPECT_TRUE(one.op >= first_op || one.type == kCreditOnly) << one.op;
}

}  // namespace

uint64_t hash_of(ConstBytes bytes) {
  return Hash()
      .add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
      .value();
}

std::string hex(uint64_t hash) {
  std::array<char, 9> out;
  std::snprintf(out.data(), out.size(), "%08x", static_cast<uint32_t>(hash ^ hash >> 32));
  return out.data();
}

void Trace::add(ConstBytes header, ConstBytes payload) {
  ASSERT_TRUE(header.size() == kShortHeader || header.size() == kLongHeader) << header.size();
  TracedMessage m;
  m.type = read<uint8_t>(header, kType);
  m.early = read<uint8_t>(header, kEarly) != 0;
  m.source = read<int32_t>(header, kSource);
  m.destination = read<int32_t>(header, kDestination);
  m.nonce = read<uint64_t>(header, kNonce);
  m.op = read<uint64_t>(header, kOp);
  m.edge = read<uint32_t>(header, kEdge);
  m.segment = read<uint32_t>(header, kSegment);
  m.credit = read<uint64_t>(header, kCredit);
  m.payload_bytes = payload.size();
  std::vector<std::byte> fixed(header.begin(), header.end());
  const auto blank = [&](size_t at, size_t bytes) { std::memset(&fixed[at], 0, bytes); };
  blank(kEarly, 1);
  blank(kNonce, 8);
  blank(kCredit, 8);
  if ((m.op & kNamesSend) == 0) blank(kOp, 8);
  m.header_hash = hash_of(fixed);
  m.payload_hash = hash_of(payload);
  std::lock_guard lock(mutex_);
  messages_.push_back(m);
}

std::vector<TracedMessage> Trace::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

bool Trace::all_have_sent(int size) const {
  std::lock_guard lock(mutex_);
  for (int rank = 0; rank < size; ++rank)
    if (std::ranges::none_of(messages_, [&](const auto& m) { return m.source == rank; }))
      return false;
  return true;
}

std::vector<std::string> data_lines(const std::vector<TracedMessage>& messages, uint64_t first_op) {
  using Edge = std::tuple<uint64_t, int, int, uint32_t>;
  std::map<Edge, std::map<uint32_t, TracedMessage>> edges;
  for (const TracedMessage& m : messages) {
    if (m.type != kData) continue;  // a grant of an earlier op may arrive late
    check_names(m, messages[0], first_op);
    auto& segments = edges[{m.op, m.source, m.destination, m.edge}];
    EXPECT_TRUE(segments.emplace(m.segment, m).second) << "a segment was sent twice";
  }
  std::vector<std::string> out;
  for (const auto& [edge, segments] : edges) {
    const TracedMessage& last = segments.rbegin()->second;
    EXPECT_EQ(last.segment + 1, segments.size()) << "a segment was left out";
    size_t bytes = 0;
    Hash headers, payloads;
    for (const auto& [segment, m] : segments) {
      bytes += m.payload_bytes;
      headers.add(m.header_hash);
      payloads.add(m.payload_hash);
    }
    out.push_back(op_text(last.op, first_op) + pair_text(last) + " edge " +
                  std::to_string(last.edge) + ": " + std::to_string(segments.size()) +
                  (segments.size() == 1 ? " segment, " : " segments, ") + std::to_string(bytes) +
                  " B, header " + hex(headers.value()) + ", data " + hex(payloads.value()));
  }
  return out;
}

std::vector<std::string> flow_lines(const std::vector<TracedMessage>& messages, uint64_t first_op) {
  std::map<std::pair<int, int>, std::vector<TracedMessage>> pairs;
  for (const TracedMessage& m : messages) {
    check_names(m, messages[0], first_op);
    pairs[{m.source, m.destination}].push_back(m);
  }
  std::vector<std::string> out;
  for (const auto& [pair, sent] : pairs) {
    std::string line = pair_text(sent[0]) + ":";
    uint64_t credit = 0;
    int on_line = 0;
    for (size_t i = 0; i < sent.size(); ++i) {
      const TracedMessage& m = sent[i];
      size_t last = i;  // end of a run of consecutive data segments
      const auto follows = [&](const TracedMessage& next) {
        return m.type == kData && next.type == kData && next.op == m.op && next.edge == m.edge &&
               next.early == m.early && next.credit == m.credit &&
               next.segment == sent[last].segment + 1;
      };
      while (last + 1 < sent.size() && follows(sent[last + 1])) ++last;
      if (i > 0) line += ",";
      if (on_line++ == kPerLine) {
        out.push_back(std::exchange(line, "    "));
        on_line = 1;
      }
      line += " ";
      line += kTypes.at(static_cast<size_t>(m.type));
      if (m.type != kCreditOnly)
        line += " " + op_text(m.op, first_op) + std::to_string(m.edge) + "." +
                std::to_string(m.segment);
      if (last > i) line += "-" + std::to_string(sent[last].segment);
      if (m.early) line += " early";
      if (std::exchange(credit, m.credit) != m.credit) line += " +" + std::to_string(m.credit);
      i = last;
    }
    out.push_back(line);
  }
  return out;
}

}  // namespace ringdist
