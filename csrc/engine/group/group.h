// One rank's side of a group on a lane: its ops in flight, its peers and their credit, what arrived
// too early, and the group's end. The Communicator is what callers see of it.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/group/ending.h"
#include "engine/group/notice.h"
#include "engine/group/parking.h"
#include "engine/group/peers.h"
#include "engine/group/point_to_point.h"
#include "engine/group/roll_call.h"
#include "engine/group/waits.h"
#include "engine/op/port.h"
#include "engine/op/run.h"
#include "transport/transport.h"

namespace ringdist {

// What a Group needs of its lane.
class GroupHost {
 public:
  virtual ~GroupHost() = default;
  virtual LaneState& lane_state() = 0;
  virtual void flood(const Notice& notice) = 0;
  // The op has an end: wake who waits for it, run its callbacks elsewhere.
  virtual void finish_op(const std::shared_ptr<Op>& op, Error error) = 0;
};

struct GroupConfig {
  std::string name;
  int64_t early_window = 0;  // bytes
  Duration warn_after{0};    // for whom an op waits is logged after this long; 0: never
  std::function<void(const Error&)> on_failed;  // the first cause, once
};

class Group final : public Port {
 public:
  static constexpr uint64_t kNoOp = std::numeric_limits<uint64_t>::max();

  Group(GroupHost& host, const Membership& membership, GroupConfig config);

  void enqueue(std::shared_ptr<Op> op);
  // Of an op that has ended: its caller has the results.
  void handed_over(uint64_t number);
  void on_message(const MessageHeader& header, ConstBytes payload);
  void on_notice(const Notice& notice);
  // Ends every op with the error and lets no later one begin. The first cause stays. `number`: the
  // op that it is about, if the others shall not finish that either though we have.
  void fail(const Error& cause, bool tell_others, uint64_t number = kNoOp);
  // The same for ops from a number on. Older ones have been given all they need, which may still be
  // on its way: they finish first, unless nothing of theirs comes in for half a second.
  void fail_from(uint64_t number, const Error& cause, bool tell_others);
  // Deadlines, stalls and broken connections; every few tens of milliseconds.
  void tick();
  // The connection to a member broke. It may have left in good order, or the control plane may know
  // more in a moment.
  void connection_lost(std::string_view transport, ContextId context, const Error& cause);
  // A process died, and what it had sent has been delivered: ends the group if an op still lacks
  // something of it, now or later. Else the op ends well, as it may have done on that process.
  void process_lost(ContextId context, const Error& cause);
  // A process has ended in good order, or lives on without ringdist; its groups have said which op
  // was their last, if they had one.
  void process_left(ContextId context);
  // Tells the others which op was the last, so that our end is not taken for a death. `how`: kLeave
  // or kExit.
  void announce_leave(NoticeKind how);

  int rank() const { return flow.rank; }
  int size() const { return flow.size; }
  uint64_t nonce() const { return nonce_; }
  const std::string& name() const { return config_.name; }
  // Nothing in flight, and no deadline to watch.
  bool idle() const;
  const Error& failure() const { return ending_.cause(); }
  GroupVerdict verdict() const;
  std::string dump() const;

  TimePoint now() const { return lane.now; }
  // A Run that has ended, and may be on the stack still: it is freed by release_ended(), which is
  // called where none is.
  void retire(std::unique_ptr<Run>&& run);
  void release_ended() { ended_.clear(); }

  // Port
  void send(MessageHeader header, ConstBytes payload, Ticket ticket) override;
  void send_control(MessageHeader header) override;
  Staged reserve(std::span<const EdgeName> to, size_t bytes) override;
  void commit(const Staged& staged, size_t used, std::span<MessageHeader> headers,
              std::span<const Ticket> tickets) override;
  void report_credit(int peer) override;
  void when_credit_returns(int peer, Run& run, int step) override;
  bool is_oldest(const Run& run) const override;
  bool gone(int peer) const override { return peers_[peer].gone(); }
  void fail(const Error& cause) override { fail(cause, /*tell_others=*/true); }
  void send_failed(int peer, const Error& cause) override;
  void finished(Run& run) override;

 private:
  void start(std::shared_ptr<Op> op);
  bool held_up(uint64_t barrier) const;
  void start_barriers();
  void deliver(Run& run, const MessageHeader& header, ConstBytes payload);
  void stamp(MessageHeader& header);
  void count_sent(const MessageHeader& header, size_t payload);
  bool agree(uint64_t number, int peer, const Fingerprint& theirs);
  void check_stall(Run& run);
  void announce_failure(uint64_t number);
  void check_doom();
  void check_broken();
  bool waits_in_vain(int peer) const;
  void check_left(uint64_t number);
  void check_lost();
  bool lacks(int peer) const;
  void forgive_sends(int peer);
  void check_point_to_point();
  bool waits_for_leaver(const Op& op, const Run* run) const;
  void end_ops();
  void time_out(const Op& op);
  void announce(NoticeKind kind, uint64_t number, const Fingerprint& fingerprint);
  void on_roll_call(const Notice& notice);
  void warn_of_waits();
  Error error_of(const Op& op, const Run* run) const;
  template <typename Each>
  void for_each_watched(const Each& each) const;

  GroupHost& host_;
  const GroupConfig config_;
  const uint64_t nonce_;
  const uint32_t generation_;
  Peers peers_;
  RollCall roll_call_;
  const Waits waits_;
  std::deque<std::shared_ptr<Op>> waiting_;        // barriers
  std::set<uint64_t> handing_over_;                // ops of which handed_over() has not told yet
  std::map<uint64_t, std::unique_ptr<Run>> runs_;  // by number: the first is the oldest
  Parking<uint64_t> parked_;                       // by op: those that are not enqueued yet
  PointToPoint point_to_point_{*this};
  std::vector<std::unique_ptr<Run>> ended_;
  uint64_t last_number_ = 0;
  uint64_t last_started_ = 0;
  Ending ending_;
};

}  // namespace ringdist
