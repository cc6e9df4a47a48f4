// Fuzz target: requests to a store, and answers of one.
#include <set>

#include "control/control_frames.h"
#include "fuzz/target.h"
#include "store/hosted_store.h"

namespace ringdist::test {
namespace store_fuzz {

constexpr size_t kFrameHeader = 5;  // bytes

std::vector<std::byte> body_of(const std::vector<std::byte>& frame) {
  return {frame.begin() + kFrameHeader, frame.end()};
}

std::optional<StoreRequest> decode_request(ConstBytes bytes) { return StoreRequest::decode(bytes); }
std::optional<StoreAnswer> decode_answer(ConstBytes bytes) { return StoreAnswer::decode(bytes); }

class World {
 public:
  void step(uint8_t client, FuzzInput& input) {
    const auto body = input.piece();
    const auto encode = [](const auto& one) { return body_of(one.frame()); };
    check_round_trip(body, decode_answer, encode);
    check_round_trip(body, decode_request, encode);
    auto request = decode_request(body);
    if (!request) return;
    if (waiting_.erase(client) > 0) table_.end_wait(client);  // its limit has passed
    const bool is_wait = request->op == StoreOp::kWait;
    const auto answer = table_.handle(client, std::move(*request));
    check(answer || is_wait, "a request without an answer");
    if (answer)
      check(is_there(StoreAnswer::decode(body_of(answer->frame()))), "an answer that is none");
    else
      waiting_.insert(client);
    for (const uint64_t ready : table_.take_ready())
      check(waiting_.erase(ready) == 1, "a client that does not wait is woken");
  }
  void end() {
    for (const uint64_t client : waiting_) table_.end_wait(client);
    (void)table_.handle(0, {.op = StoreOp::kSet, .keys = {"key"}, .values = {{}}});
    check(table_.take_ready().empty(), "a client that has ended is woken");
  }

 private:
  StoreTable table_;
  std::set<uint64_t> waiting_;
};

FuzzSeeds seeds() {
  const std::vector<std::byte> number{std::byte{'7'}};
  FuzzSeed all;
  const auto add = [&all](uint8_t client, const StoreRequest& request) {
    all.byte(client).piece(body_of(request.frame()));
  };
  add(0, {.op = StoreOp::kWait, .number = 1, .keys = {"key", "other"}});
  add(1, {.op = StoreOp::kWait, .number = 1, .keys = {"other"}});
  add(2, {.op = StoreOp::kSet, .keys = {"key"}, .values = {number}});
  add(2, {.op = StoreOp::kAdd, .number = 3, .keys = {"key"}});
  add(2, {.op = StoreOp::kAppend, .keys = {"other"}, .values = {number}});
  add(2, {.op = StoreOp::kCompareSet, .keys = {"key"}, .values = {number, {}}});
  add(2, {.op = StoreOp::kGet, .keys = {"key", "other"}});
  add(2, {.op = StoreOp::kCheck, .keys = {"key", "absent"}});
  add(2, {.op = StoreOp::kRemove, .keys = {"key"}});
  add(2, {.op = StoreOp::kCount});
  add(2, {.op = StoreOp::kHello, .number = StoreRequest::kVersion});
  const StoreAnswer answer{.number = 1, .text = "why", .values = {number, {}}};
  return {all.take(), FuzzSeed().byte(0).piece(body_of(answer.frame())).take()};
}

}  // namespace store_fuzz

const FuzzTarget kStoreFuzz{"store", "csrc/store/store_(table|messages)",
                            [](ConstBytes input) { return run_steps<store_fuzz::World>(input, 4); },
                            store_fuzz::seeds};

}  // namespace ringdist::test
