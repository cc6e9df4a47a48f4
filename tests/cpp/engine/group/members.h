// Groups of all ranks of a test, without threads and with a clock that the test moves.
// Single-threaded.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/group/fake_group_delegate.h"
#include "support/fake_transport.h"
#include "support/requests.h"

namespace ringdist::test {

inline constexpr uint64_t kNonce = 77;
inline constexpr int64_t kGroupSegment = 1024;
inline const Error kKilled(ErrorKind::kPeerLost, "killed by signal 9");

// One rank: a Group with its fake lane and fake transport.
struct Member {
  Member(int rank, int size)
      : planner({rank, size, "", false, kGroupSegment}),
        group(host, membership(rank, size, wire), config()) {}
  ContextId context() const { return context(group.rank()); }

  static ContextId context(int rank) { return static_cast<ContextId>(rank + 1); }
  static GroupDescriptor membership(int rank, int size, Transport& wire) {
    GroupDescriptor out;
    out.nonce = kNonce;
    out.rank = rank;
    out.topology = Topology::one_host(size);
    for (int one = 0; one < size; ++one)
      out.members.push_back({context(one), &wire, "pid " + std::to_string(100 + one)});
    return out;
  }
  static GroupConfig config() {
    GroupConfig out;
    out.name = "alone";
    out.eager_window = EagerCredit::kSegments * kGroupSegment;
    return out;
  }

  std::shared_ptr<Op> call(OpRequest request) {
    const uint64_t number = request.envelope ? 0 : ++calls;
    auto op = planned_op(planner, std::move(request), number);
    op->started = host.state.now;
    op->deadline = op->started + std::chrono::seconds(60);
    group.enqueue(op);
    host.work(group);
    return op;
  }
  std::shared_ptr<Op> allreduce(ReduceOp reduce_op = ReduceOp::kSum, bool output_staged = false) {
    OpRequest request = allreduce_request(data, DType::kFloat32, reduce_op);
    request.output_staged = output_staged;
    return call(std::move(request));
  }
  std::shared_ptr<Op> barrier() {
    OpRequest request;
    request.kind = Collective::kBarrier;
    request.dtype = DType::kBytes;
    return call(std::move(request));
  }
  std::shared_ptr<Op> message(int peer, bool sends, bool output_staged = false) {
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kNone);
    request.kind = Collective::kPointToPoint;
    request.envelope = Envelope{peer, 0, sends};
    request.output_staged = output_staged;
    request.input = request.output;
    return call(std::move(request));
  }
  void pass(Duration time) {
    host.state.now += time;
    group.tick();
    host.work(group);
  }

  std::vector<float> data = std::vector<float>(4, 1.0f);
  FakeGroupDelegate host;
  FakeTransport wire{host.on_sent()};
  Planner planner;
  Group group;
  uint64_t calls = 0;
};

class Members {
 public:
  explicit Members(int size) {
    for (int rank = 0; rank < size; ++rank) all_.push_back(std::make_unique<Member>(rank, size));
  }
  static ContextId context(int rank) { return Member::context(rank); }
  Member& operator[](int rank) { return *all_[static_cast<size_t>(rank)]; }

  // Delivers messages and, if `notices`, notices until there are none.
  void deliver(bool notices = true) {
    for (bool any = true; any;) {
      any = false;
      for (auto& from : all_) {
        for (auto& [to, queue] : from->wire.sent)
          for (; !queue.empty(); any = true) {
            const auto message = std::move(queue.front());
            queue.pop_front();
            MessageHeader header{};
            ASSERT_TRUE(parse_header(message.header, header));
            Member& target = (*this)[static_cast<int>(to) - 1];
            target.group.on_message(from->context(), header, message.payload);
            target.host.work(target.group);
          }
        if (!notices) continue;
        for (Notice& notice : std::exchange(from->host.flooded, {})) {
          any = true;
          notice.from = context(notice.rank);
          for (auto& to : all_)
            if (to != from) {
              to->group.on_notice(notice);
              to->host.work(to->group);
            }
        }
      }
    }
  }

 private:
  std::vector<std::unique_ptr<Member>> all_;
};

inline void expect_failed(const Op& op, ErrorKind kind, const std::string& words) {
  ASSERT_TRUE(op.finished());
  ASSERT_TRUE(op.error());
  EXPECT_EQ(op.error().kind(), kind) << op.error().what();
  EXPECT_NE(op.error().message().find(words), std::string::npos) << op.error().what();
}

}  // namespace ringdist::test
