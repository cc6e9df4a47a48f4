// Fake surroundings of OpExecutions on several ranks, without group, lane, transport and time.
// Messages stay in queues until the test delivers them, and sends complete when the test requests
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/op/execution_delegate.h"
#include "engine/op/op_execution.h"
#include "support/requests.h"

namespace ringdist::test {

inline constexpr int64_t kRunSegment = 1024;

class FakeExecutionDelegate final : public ExecutionDelegate, public MessageSender {
 public:
  struct Message {
    MessageHeader header;
    std::vector<std::byte> payload;
  };

  FakeExecutionDelegate(ProgressState& progress, int rank, int size,
                        int64_t window = EagerCredit::kSegments * kRunSegment)
      : ExecutionDelegate(progress, GroupFlowState(rank, size, window), *this) {}

  std::map<int, std::deque<Message>> sent;  // by destination
  std::deque<SendId> send_ids;              // sends that have not completed
  std::vector<std::pair<int, SendId>> withdrawn;
  std::vector<std::pair<OpExecution*, int>> blocked;
  std::vector<OpExecution*> ended;
  std::vector<Error> failures;
  std::map<int, Error> lost;
  std::vector<int> gone_ranks;
  const OpExecution* oldest = nullptr;
  bool copies = false;  // behaves like a transport that copies its messages
  int reservations = 0;

  void send(MessageHeader header, ConstBytes payload, SendId send_id) override {
    if (header.eager) flow.eager[header.destination].sent(payload.size());
    send_ids.push_back(send_id);
    push(header, payload);
  }
  void revoke_payload(int peer, SendId send_id) override { withdrawn.emplace_back(peer, send_id); }
  void send_control(MessageHeader header) override { push(header, {}); }
  bool would_copy(std::span<const EdgeId>, ConstBytes) const override { return copies; }
  StagedMessage reserve(std::span<const EdgeId>, size_t bytes) override {
    ++reservations;
    const PooledBuffer block(progress.scratch, bytes);
    return {block.bytes(), nullptr, block};
  }
  void commit(const StagedMessage& staged, size_t used, std::span<MessageHeader> headers,
              std::span<const SendId> of) override {
    for (size_t i = 0; i < headers.size(); ++i) send(headers[i], staged.bytes.first(used), of[i]);
  }
  void report_credit(int peer) override {
    MessageHeader header{};
    header.type = MessageType::kCredit;
    header.destination = peer;
    push(header, {});
  }
  void await_credit(int, OpExecution& run, int step) override { blocked.emplace_back(&run, step); }
  bool is_oldest(const OpExecution& run) const override { return &run == oldest; }
  bool departed(int peer) const override { return std::ranges::count(gone_ranks, peer) > 0; }
  void fail(const Error& cause) override { failures.push_back(cause); }
  void send_failed(int peer, const Error& cause) override { lost[peer] = cause; }
  void finished(OpExecution& run) override {
    ended.push_back(&run);
    run.stop();
  }

  // Runs all queued steps.
  void work() {
    while (!progress.work.empty()) run_next_step(progress);
  }
  // Completes the i-th of the pending sends.
  void end_send(size_t i, const Error& error = {}) {
    const SendId send_id = send_ids[i];
    send_ids.erase(send_ids.begin() + static_cast<ptrdiff_t>(i));
    complete_send(progress, send_id, error);
  }
  // Returns the number of queued messages of this type to a rank.
  int count(int destination, MessageType type) const {
    const auto it = sent.find(destination);
    if (it == sent.end()) return 0;
    return static_cast<int>(std::ranges::count_if(
        it->second, [&](const Message& message) { return message.header.type == type; }));
  }

 private:
  void push(MessageHeader header, ConstBytes payload) {
    header.source = flow.rank;
    header.credit = flow.eager[header.destination].report();
    sent[header.destination].push_back({header, {payload.begin(), payload.end()}});
  }
};

// One rank's allreduce of `data` and its OpExecution.
struct OneRank {
  OneRank(int rank, int size, std::vector<float> values, int64_t memory_limit = 1 << 24,
          const std::string& algorithm = "")
      : data(std::move(values)),
        progress(statistics, memory_limit),
        delegate(progress, rank, size),
        planner({rank, size, algorithm, false, kRunSegment}) {}

  std::shared_ptr<Op> make_op(std::shared_ptr<const CodecMap> blocks = nullptr) {
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
    request.codec_map = std::move(blocks);
    return planned_op(planner, std::move(request), 1);
  }
  void make_execution(std::shared_ptr<const CodecMap> blocks = nullptr) {
    run = ringdist::make_execution(delegate, make_op(std::move(blocks)), 1);
  }
  OpExecution& start(std::shared_ptr<const CodecMap> blocks = nullptr) {
    make_execution(std::move(blocks));
    delegate.oldest = run.get();
    run->start();
    delegate.work();
    return *run;
  }
  void receive(const FakeExecutionDelegate::Message& message) {
    const MessageHeader& header = message.header;
    if (delegate.flow.eager[header.source].returned(header.credit))
      for (const auto& [waiting, step] : std::exchange(delegate.blocked, {})) waiting->queue(step);
    if (!delegate.ended.empty()) return;
    switch (header.type) {
      case MessageType::kData:
        run->on_data(header, message.payload);
        break;
      case MessageType::kRequest:
        run->on_request(header);
        break;
      case MessageType::kGrant:
      case MessageType::kFirstGrant:
        run->on_grant(header);
        break;
      case MessageType::kCredit:
      case MessageType::kService:
        break;
    }
    delegate.work();
  }
  bool done() const { return !delegate.ended.empty(); }

  std::vector<float> data;
  Statistics statistics;
  ProgressState progress;
  FakeExecutionDelegate delegate;
  Planner planner;
  OpExecutionPtr run;
};

}  // namespace ringdist::test
