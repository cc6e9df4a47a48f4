// Fuzz target: messages of the negotiation. The rank is the root or another one, with calls of its
// own.
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <memory>

#include "fuzz/target.h"
#include "negotiation/call_content.h"
#include "negotiation/order/negotiator.h"
#include "negotiation/stall/stall_inspector.h"
#include "negotiation/timeline/timeline.h"

namespace ringdist::test {
namespace negotiation_fuzz {

constexpr int kRanks = 6;  // 1 to 4 are children of rank 0, and 5 is one of rank 1
constexpr int64_t kMostElements = 1 << 16;

enum Step : uint8_t { kOrder, kStall, kTimeline, kContent, kCall, kRan, kPass, kSteps };

// Each call ends at most once.
class World final : NegotiatorDelegate, StallDelegate, TimelineDelegate {
 public:
  explicit World(int rank)
      : rank_(rank),
        path_(std::filesystem::temp_directory_path() /
              ("fuzz-timeline-" + std::to_string(getpid()))),
        negotiator_(static_cast<NegotiatorDelegate&>(*this), Topology::one_host(kRanks), rank, {}),
        stalls_(static_cast<StallDelegate&>(*this), rank, kRanks, std::chrono::seconds(1)),
        timeline_(static_cast<TimelineDelegate&>(*this), two_hosts(), rank, "fuzz") {}
  ~World() override {
    for (int rank = 0; rank < kRanks; ++rank)
      (void)std::remove(Timeline::part_of(path_, rank).c_str());
  }

  // Returns false if the group ends.
  bool step(uint8_t step, FuzzInput& input) {
    const int from = (rank_ + 1 + input.byte() % (kRanks - 1)) % kRanks;  // any other rank
    if (step == kCall) call(from);
    if (step == kRan && running_ > 0 && running_-- > 0) negotiator_.ran();
    if (step == kPass) now_ += Milliseconds(100) * from;
    const auto bytes = step <= kContent ? input.piece() : std::vector<std::byte>();
    Error error;
    if (step == kOrder) error = order(from, bytes);
    if (step == kStall) error = stall(from, bytes);
    if (step == kTimeline) error = timeline(from, bytes);
    if (step == kContent) content(bytes);
    check(!error || error.kind() == ErrorKind::kProtocol, "another kind of error");
    if (error) return false;
    negotiator_.flush();
    stalls_.tick(now_);
    timeline_.compare_clocks(now_);
    return true;
  }

 private:
  static Topology two_hosts() { return Topology::from_hosts({{0, 2, 4}, {1, 3, 5}}, kRanks); }
  void call(int number) {
    const std::string name(1, static_cast<char>('a' + number));
    if (has_joined_ || !open_.emplace(name, now_).second) return;
    negotiator_.call(name, {name, name, 1, 8, false}, std::vector<int64_t>{number});
  }
  Error order(int from, ConstBytes bytes) {
    check_round_trip(bytes, ReadyMessage::decode, [](const auto& one) { return one.encode(); });
    check_round_trip(bytes, DecisionMessage::decode,
                     [](const auto& one) { return one.first.encode(one.second); });
    return negotiator_.receive(from, bytes);
  }
  Error stall(int from, ConstBytes bytes) {
    check_round_trip(bytes, StallMessage::decode, [](const auto& one) { return one.encode(); });
    return stalls_.receive(from, bytes, now_);
  }
  // The path of a message may be any, so only that of this process is used.
  Error timeline(int from, ConstBytes bytes) {
    check_round_trip(bytes, TimelineMessage::decode, [](const auto& one) { return one.encode(); });
    auto message = TimelineMessage::decode(bytes);
    if (!message.ok()) return message.error();
    if (message.value().kind == TimelineMessage::Kind::kStart) message.value().path = path_;
    return timeline_.receive(from, message.value().encode(), now_);
  }
  static void content(ConstBytes bytes) {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto call = CallContent::parse(text);
    if (!call.ok()) return;
    const CallDescription described = call.value().describe();
    check(described.bytes >= 0, "a call of a negative size");
    check(CallContent::parse(described.content).ok(), "an encoding cannot be decoded");
    (void)first_tensor_difference(text, described.content);
    if (described.bytes <= kMostElements) (void)joined_contribution(described);
  }

  // NegotiatorDelegate
  void send(int rank, std::vector<std::byte>) override { check(is_rank(rank), "no rank"); }
  void run(const std::vector<ResponseCache::AgreedCall>& batch) override {
    for (const auto& call : batch) open_.erase(call.entry->name);
    ++running_;
  }
  void fail(const std::string& name, const std::string&) override { open_.erase(name); }
  void all_joined(int) override { has_joined_ = false; }
  std::string describe_difference(const CallDescription& one,
                                  const CallDescription& other) const override {
    return first_tensor_difference(one.content, other.content);
  }
  // StallDelegate
  void send_stall(int rank, std::vector<std::byte> message) override {
    check(is_rank(rank) && StallMessage::decode(message).ok(), "an invalid answer");
  }
  std::string describe_rank(int rank) const override { return "rank " + std::to_string(rank); }
  std::vector<OpenCall> open_calls() const override {
    std::vector<OpenCall> out;
    for (const auto& [name, since] : open_) out.push_back({name, since});
    return out;
  }
  bool has_joined() const override { return has_joined_; }
  std::string elsewhere() const override { return ""; }
  void warn(const std::string&) override {}
  // TimelineDelegate
  void send_timeline(int rank, std::vector<std::byte> message) override {
    check(is_rank(rank) && TimelineMessage::decode(message).ok(), "an invalid answer");
  }
  bool record(std::shared_ptr<TraceRecorder>) override { return true; }
  void gathered(const Error&) override {}
  void discard(std::shared_ptr<void>) noexcept override {}

  bool is_rank(int rank) const { return rank >= 0 && rank < kRanks && rank != rank_; }

  const int rank_;
  const std::string path_;
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  std::map<std::string, TimePoint> open_;
  bool has_joined_ = false;
  int running_ = 0;
  Negotiator negotiator_;
  StallInspector stalls_;
  Timeline timeline_;
};

bool run(ConstBytes bytes) {
  FuzzInput input(bytes);
  World world(input.byte() % kRanks);
  while (!input.empty())
    if (!world.step(input.byte() % kSteps, input)) break;
  return true;
}

// ---- Seeds

std::vector<std::byte> seed(int rank, Step step, int from,
                            const std::vector<std::vector<std::byte>>& messages) {
  FuzzSeed out;
  out.byte(static_cast<uint8_t>(rank)).byte(kCall).byte(0).byte(kCall).byte(1);
  for (const auto& message : messages)
    out.byte(step)
        .byte(static_cast<uint8_t>((from - rank - 1 + kRanks) % kRanks))
        .piece(message)
        .byte(kPass)
        .byte(5);
  return out.byte(kRan).byte(0).take();
}

FuzzSeeds seeds() {
  const CallDescription described{"a", "a", 1, 8, false};
  ReadyMessage ready;
  ready.ready.push_back({{0, "a", described}, 1, {{1, {5}}}, "", std::nullopt, 1});
  ReadyMessage joined;
  joined.seen = 1;
  joined.joined = 1;
  DecisionMessage decision;
  decision.position = 1;
  decision.batches = {{{{1, "a", described}, true, {{1, {5}}, {0, {0}}}, 1}}};
  decision.failed = {{"b", "why"}};
  DecisionMessage again;
  again.position = 2;
  again.batches = {{{{1, "", {}}, false, {}, 1}}};
  again.all_joined = 2;
  StallMessage ask, inquire, answer, found;
  ask.calls = {{"a", 600, true}};
  inquire.kind = StallMessage::Kind::kInquire;
  inquire.query = answer.query = 1;
  inquire.names = {"a", "b"};
  answer.kind = StallMessage::Kind::kAnswer;
  answer.lacks = 1;
  answer.instead = "waits for nothing";
  found.kind = StallMessage::Kind::kFound;
  found.found = {{"a", "rank 2"}};
  std::vector<std::vector<std::byte>> up, down;
  for (uint8_t kind = 0; kind <= static_cast<uint8_t>(TimelineMessage::Kind::kDone); ++kind) {
    TimelineMessage one;
    one.kind = static_cast<TimelineMessage::Kind>(kind);
    one.path = "x";
    one.bytes.resize(3);
    const bool goes_up = one.kind == TimelineMessage::Kind::kPing ||
                         one.kind == TimelineMessage::Kind::kStopped ||
                         one.kind == TimelineMessage::Kind::kPart;
    (goes_up ? up : down).push_back(one.encode());
  }
  CallContent content;
  content.tensors = {{DType::kFloat32, {2, 3}}, {DType::kInt64, {CallContent::kAny, 4}}};
  content.reduce_op = ReduceOp::kSum;
  const std::string text = content.describe().content;
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {seed(0, kOrder, 1, {ready.encode(), joined.encode()}),
          seed(5, kOrder, 1, {decision.encode(0), again.encode(0)}),
          seed(1, kOrder, 5, {ready.encode(), joined.encode()}),
          seed(0, kStall, 1, {ask.encode(), answer.encode(), ask.encode()}),
          seed(1, kStall, 0, {inquire.encode(), found.encode()}),
          seed(0, kTimeline, 1, up),
          seed(1, kTimeline, 0, down),
          seed(1, kContent, 0, {{bytes, bytes + text.size()}})};
}

}  // namespace negotiation_fuzz

const FuzzTarget kNegotiationFuzz{"negotiation", "csrc/negotiation/", negotiation_fuzz::run,
                                  negotiation_fuzz::seeds};

}  // namespace ringdist::test
