// The control thread: owns all state of the control plane and decides who is lost. Other threads
// reach it through commands and wait for answers, so nothing here but the command queue needs a
// lock.
//   loop.cc     life of the thread, commands, answers
//   receive.cc  what arrives: hellos, frames, ends of connections, deaths
//   upkeep.cc   what time brings: dialing, silence
//   formed.cc   who has found all others of a group
//   report.cc   texts for humans
// Owned by Control, which must leak it in a forked child.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/config.h"
#include "base/patience.h"
#include "base/thread_annotations.h"
#include "control/events.h"
#include "control/ledger.h"
#include "control/links.h"
#include "control/sockets.h"
#include "os/epoll.h"
#include "os/eventfd.h"
#include "os/signal.h"

namespace ringdist {

// What is known of another process that we are, or were, connected to.
struct ControlPeer {
  // One per kind of link.
  struct Line {
    bool reached = false;  // was connected, and neither side gave it up
    TimePoint heard{};
    TimePoint wanted{};     // since when it has been missing
    TimePoint retry_at{};   // next dial
    int refusals = 0;       // by the kernel, in a row: nobody listens there
    std::string rejection;  // by the process itself
    std::string failure;    // of the last dial

    bool deserted() const { return refusals >= 3; }
  };

  Line& line(LinkKind kind) { return lines[static_cast<size_t>(kind)]; }
  const Line& line(LinkKind kind) const { return lines[static_cast<size_t>(kind)]; }

  int pid = 0;
  Fd pidfd;
  TimePoint exits_since{};  // its process is about to end
  bool proven = false;      // by prove_same_host: kept until a group has used it
  std::string unix_name;    // as given with the proof
  Line lines[2];
};

class ControlLoop : private ControlSockets::Owner {
 public:
  static Result<std::unique_ptr<ControlLoop>> create(uint64_t context_id, const Config& config,
                                                     const std::string& local_ip,
                                                     ControlEvents& events);
  ~ControlLoop() override;

  uint64_t id() const { return id_; }
  const std::string& unix_name() const { return sockets_.unix_name(); }
  const std::string& tcp_address() const { return sockets_.tcp_address(); }

  // From other threads. The blocking ones answer soon after their time is over at the latest.
  Error prove(uint64_t peer, std::string unix_name, TimePoint deadline);
  Error connect(uint64_t nonce, int my_rank, std::vector<ControlMember> members,
                const Patience& patience);
  void disconnect(uint64_t nonce, int rank);
  void flood(std::vector<std::byte> payload);
  void leave(bool process_ends);
  void stop();

 private:
  struct Group {
    explicit Group(ControlRoster members) : roster(std::move(members)) {}
    // All ranks of this process have left it; it stays until the others have heard so.
    bool left() const { return ranks.empty(); }

    ControlRoster roster;
    std::set<int> ranks;     // of this process
    bool connected = false;  // connect_group succeeded; its hosts are judged from then on
    bool representative = false;
    TimePoint judged_since{};
    TimePoint left_at{};
    std::map<int, size_t> scan;  // per neighbour host: where the search for a live process stands
  };
  struct Request {
    bool is_proof = false;
    uint64_t id = 0;                     // of the peer or the group
    const Patience* patience = nullptr;  // its caller's, who waits for the answer
    std::shared_ptr<std::promise<Error>> answer;
  };

  ControlLoop(uint64_t id, const Config& config, ControlEvents& events, Epoll epoll, EventFd wake,
              EventFd signalled);

  // loop.cc
  Error open(const std::string& local_ip);
  void run();
  void turn();
  void handle(const Epoll::Event& event);
  bool post(std::function<void()> command);
  void run_commands();
  void hurry() { next_tick_ = TimePoint(); }
  Error ask(Request request, std::function<void()> begin);
  void settle();
  std::optional<Error> answer_to(const Request& request);
  std::optional<Error> proof_answer(const Request& request);
  std::optional<Error> group_answer(const Request& request);
  std::optional<Error> missing_peer(Group& group, uint64_t peer, LinkKind kind, bool expired);
  void leave_group(uint64_t nonce, int rank);
  void say_goodbye();
  bool goodbye_seen(const ControlConnection& connection);
  void finish();

  // receive.cc
  ControlSockets::Admission admit(const ControlConnection& connection, const Hello& hello) override;
  void on_reached(ControlConnection& connection) override;
  void on_open(ControlConnection& connection) override;
  void on_frame(ControlConnection& connection, const Frame& frame) override;
  void on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                 const std::string& reason) override;
  void on_record(ControlConnection& connection, const Frame& frame);
  void on_flood(ControlConnection& connection, const Frame& frame);
  void on_dump_request(ControlConnection& connection);
  void on_exits(ControlConnection& connection);
  void on_exit(uint64_t peer);
  void watch_exit(uint64_t peer, int pid);
  void learn_lost(uint64_t id, const std::string& cause, const ControlConnection* from = nullptr);
  void learn_left(uint64_t id, const ControlConnection* from);
  void forget_old_fates();
  void drop(uint64_t peer);  // and its connections
  void forget(uint64_t peer);

  // formed.cc
  void on_formed(ControlConnection& connection, const Frame& frame);
  void learn_formed(uint64_t nonce, const std::vector<uint64_t>& processes,
                    const ControlConnection* from);
  void tell_formed(uint64_t nonce, const ControlRoster& roster,
                   const std::vector<uint64_t>& processes, const ControlConnection* from);
  void tell_all_formed(ControlConnection& connection);
  void forget_formed(uint64_t nonce);
  void forget_left();
  bool formed(uint64_t nonce, uint64_t process) const;
  std::optional<Error> formed_answer(const Group& group, const Request& request);

  // upkeep.cc
  void upkeep();
  void forgive_own_pause(TimePoint now, Duration planned);
  void keep_linked(Group& group);
  void want(uint64_t peer, LinkKind kind, bool dials_first);
  void watch_hosts(Group& group);
  void judge_host(Group& group, int host);
  void judge_peers();
  bool judge_line(uint64_t id, ControlPeer& peer, LinkKind kind);
  void settle_needs();
  bool relied_on(uint64_t peer) const;
  bool needed(uint64_t peer) const;
  bool unsettled();
  Duration suspect_after() const;

  // report.cc
  const ControlMember* find_member(uint64_t peer) const;
  std::string name_of(uint64_t peer) const;
  std::string report();
  std::string report_peer(uint64_t id, const ControlPeer& peer);
  void report_to_stderr();

  bool gone(uint64_t id) const { return ledger_.gone(id); }
  bool exiting(uint64_t id) const {
    const auto peer = peers_.find(id);
    return peer != peers_.end() && peer->second.exits_since != TimePoint();
  }

  const uint64_t id_;
  const Duration peer_timeout_;
  ControlEvents& events_;
  Epoll epoll_;
  const EventFd wake_;
  const EventFd signalled_;

  std::mutex mutex_;  // a leaf: nothing is called while it is held
  std::vector<std::function<void()>> commands_ RINGDIST_GUARDED_BY(mutex_);
  bool finished_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::mutex join_mutex_;  // one stop() joins, others wait
  std::atomic<bool> stopping_{false};

  // The control thread's alone.
  ControlSockets sockets_;
  ControlLedger ledger_;
  std::map<uint64_t, ControlPeer> peers_;
  std::map<uint64_t, Group> groups_;
  std::map<uint64_t, std::set<uint64_t>> formed_;  // by nonce, also of groups not known here yet
  std::deque<uint64_t> formed_order_;              // its nonces, the oldest first
  std::map<uint64_t, uint64_t> exits_;             // epoll key of a pidfd -> peer
  std::vector<Request> requests_;
  std::shared_ptr<std::promise<Error>> goodbye_;  // while leaving
  TimePoint goodbye_until_{};
  bool silent_ = false;        // has left: events are no longer delivered
  bool process_ends_ = false;  // it has left for that reason
  TimePoint now_{};            // of this turn
  TimePoint next_tick_{};
  uint64_t next_exit_key_ = uint64_t{1} << 40;
  uint64_t sequence_ = 0;

  // A thread writes a report to stderr; it may outlive us.
  const std::shared_ptr<std::atomic<bool>> reporting_ = std::make_shared<std::atomic<bool>>();

  std::unique_ptr<SignalWatch> signal_watch_;
  std::thread thread_;
};

}  // namespace ringdist
