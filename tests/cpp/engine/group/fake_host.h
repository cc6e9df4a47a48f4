// The lane of a Group that is tested alone: its clock is the test's, what it floods and what ends
// is kept. What the Group sends lies in the transport until the test delivers it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/group/seat.h"

namespace ringdist::test {

// A rank destroyed the group; `last`: the op it took part in last.
inline Notice leave_notice(uint64_t nonce, int rank, uint64_t last) {
  Notice notice;
  notice.kind = NoticeKind::kLeave;
  notice.nonce = nonce;
  notice.rank = rank;
  notice.op = last;
  return notice;
}

class FakeHost final : public GroupHost {
 public:
  Statistics statistics;
  LaneState state{statistics, int64_t{1} << 24};
  std::vector<Notice> flooded;

  LaneState& lane_state() override { return state; }
  void flood(const Notice& notice) override { flooded.push_back(notice); }
  void finish_op(const std::shared_ptr<Op>& op, Error error) override {
    for (const auto& callback : op->finish(std::move(error))) callback();
  }

  // What can run, does; then what has ended is freed.
  void work(Group& group) {
    while (!state.work.empty()) {
      const WorkItem item = state.work.pop();
      item.run->work(item.step);
    }
    group.release_ended();
  }
  int count(NoticeKind kind) const {
    return static_cast<int>(std::ranges::count(flooded, kind, &Notice::kind));
  }
};

// Keeps messages by destination, and ends their sends at once or when told.
class FakeWire final : public Transport {
 public:
  struct Message {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
  };
  explicit FakeWire(LaneState& lane) : lane_(lane) {}

  std::map<ContextId, std::deque<Message>> sent;
  bool ends_sends = true;
  bool reaches_all = true;

  std::string_view name() const override { return "fake"; }
  size_t max_payload() const override { return size_t{1} << 18; }
  std::vector<std::byte> address() const override { return {}; }
  Error add_peer(ContextId, ConstBytes) override { return {}; }
  bool reaches(ContextId) const override { return reaches_all; }
  void send(ContextId peer, ConstBytes header, ConstBytes payload, Ticket ticket) override {
    sent[peer].push_back({{header.begin(), header.end()}, {payload.begin(), payload.end()}});
    if (ticket == kNoTicket) return;
    held_.push_back(ticket);
    if (ends_sends) end_sends();
  }
  std::optional<Bytes> reserve(size_t) override { return std::nullopt; }
  void commit(Bytes, size_t, std::span<const Outgoing>) override {}
  bool progress() override { return false; }
  int event_fd() const override { return -1; }
  bool arm() override { return true; }
  void drop_peer(ContextId) override {}
  void ask_delivery() override {}
  bool delivered() const override { return true; }
  void close() override {}

  // As the Executor does with a ticket that comes home.
  void end_sends() {
    for (const Ticket ticket : std::exchange(held_, {})) {
      const auto home = lane_.tickets.redeem(ticket);
      if (home && home->what.run != nullptr)
        home->what.run->on_sent(home->what.step, home->what.target, home->what.segment, {});
    }
  }

 private:
  LaneState& lane_;
  std::vector<Ticket> held_;
};

}  // namespace ringdist::test
