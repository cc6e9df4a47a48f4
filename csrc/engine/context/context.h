// Context: the state of this process that groups share. It has the progress engine, the transports,
// the control plane, the membership service and the task pool. Other processes identify it by a
// random id. The module has one Context; tests make one per rank.
//
// Any thread. Owned by shared_ptr, which every group holds.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/thread_annotations.h"
#include "control/control_thread.h"
#include "engine/context/slow_link_detector.h"
#include "engine/context/straggler_detector.h"
#include "engine/context/task_pool.h"
#include "engine/op/statistics.h"
#include "engine/progress/progress_engine.h"
#include "membership/membership_service.h"
#include "os/fork_guard.h"
#include "rendezvous/rank_info.h"
#include "transport/registry.h"
#include "transport/tcp/data_port.h"

namespace ringdist {

// Options of a Context.
struct ContextOptions {
  Config config;
  std::string store_host;                       // for groups that do not set one
  std::vector<std::string> transports;          // best first; if empty, process_transports()
  std::shared_ptr<LocalNetwork> local_network;  // for transport `local`
};

// The state of one process. Its destructor shuts down; in a forked child it leaks what belongs to
// threads of the parent.
class Context final : private ControlDelegate, private DispatcherDelegate {
 public:
  // Starts the progress thread and the control thread. Opens no transport. Errors: those of the
  // network interfaces and of the system.
  static Result<std::shared_ptr<Context>> create(ContextOptions options);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ContextId id() const { return id_; }
  const Config& config() const { return options_.config; }
  ProgressEngine& progress() { return *progress_; }
  ControlThread& control() { return *control_; }
  MembershipService& assembly() { return *assembly_; }
  TaskPool& pool() { return pool_; }
  // Counters of all groups.
  const Statistics& statistics() const { return statistics_; }
  // Returns true in a child that was forked after the Context was made. There nothing of it may be
  // used.
  bool forked() const { return mark_.forked(); }

  // The network by which processes on other hosts reach this one, for one group.
  struct Network {
    std::string ip;
    std::vector<std::string> others;  // ips of further interfaces that the user named
    // The interface of `ip`, and others that the user named, in UCX' syntax.
    std::string devices;
    bool loopback = false;  // only this host can reach it
    bool guessed = false;   // no route led to a host, so the choice may be wrong
    bool plain = false;     // a device has an address that is neither link-local nor labelled
  };
  // Returns the network on the route to `host`, or to ContextOptions::store_host without one. The
  // first call for a host may block in the resolver; later ones use the same result.
  Result<Network> network(const std::optional<std::string>& host);
  // Returns the rank info that this process publishes for a group on that network. Listens there,
  // and opens the transports that open fast and the one that Config::transport names. With `late`,
  // also opens the one that `wanted` names, or the best of the slow ones if it is empty. Errors: no
  // transport between hosts could be opened, or the system refused. Further ones are
  // kInvalidArgument for an unknown transport name, and kSystem if the progress engine does not
  // answer within 10 s.
  Result<RankInfo> entry(const Network& network, bool late, const std::string& wanted);
  // Returns an IP address at which this process can serve others. It is that of the last network
  // given to entry() that is not loopback, or else that of the first network.
  std::string service_ip();
  // Returns the transport to this process itself. Opens no other one.
  Result<Transport*> to_self();
  // Checks that there are enough file descriptors for connections to these processes of this host,
  // in addition to those that it has met before. Error: kSystem, with the number that is needed.
  Error room_for(const std::vector<ContextId>& processes);
  // Returns the transport by which to send to `peer`: the first that both have, or the one named
  // `wanted`. Adds the peer to it, which makes no connection yet. Errors: kPeerLost if there is
  // none, and those of Transport::add_peer().
  Result<Transport*> reach(const RankInfo& peer, bool same_host, const std::string& wanted,
                           const Network& network);

  // Returns the credentials of this process: the key of the job, or a certificate. Null without
  // any.
  const std::shared_ptr<const TlsKey>& tls_key() const { return tls_key_; }
  // Returns an error if the certificate of this process is not for that global rank.
  Error check_rank(int global_rank) const;
  // Ranks have new numbers once this process has got into a later generation of a group. From then
  // on, they are not compared with those of certificates.
  void renumber_ranks() { renumbered_ = true; }
  bool compares_ranks() const { return !renumbered_; }
  // Succeeds if a process that listens on that AF_UNIX name answers as `process`, which proves that
  // it runs on this host. Blocks for two seconds at most.
  Error prove_same_host(ContextId process, const std::string& unix_name);

  // Returns the cause if that process was lost; success otherwise. A process that is lost stays so,
  // because a context id is never used again.
  Error lost(ContextId context_id);
  // Like lost(), but also returns an error if the process has left.
  Error departed(ContextId context_id);

  // Limit for waiting for others at an end: for a bootstrap under way, for sent messages to arrive.
  static constexpr auto kFinishTime = std::chrono::seconds(2);
  // Functions by which shutdown() makes a group leave in good order.
  struct GroupCloser {
    std::function<void(NoticeKind, TimePoint until)> finish;  // waits for ops in flight
    std::function<void(NoticeKind)> leave;                    // announces that this rank has left
    std::function<void()> end;  // ends device work; ops in flight have failed
  };
  // Groups register while they are open. `key` identifies the registration. remove_leaver() does
  // not wait for functions of the registration that shutdown() is calling.
  void add_leaver(const void* key, GroupCloser leaver);
  void remove_leaver(const void* key);

  // Leaves every group, after what was sent has arrived (two seconds at most), and stops all
  // threads. Idempotent; also the destructor's work. Callbacks that run for more than another
  // second are left behind. A second caller returns at once, although the first may still be at
  // work. `process_ends`: the process is about to exit, and other processes act on its notices only
  // when it has.
  void shutdown(bool process_ends = false);

  // Returns the state of all groups for a log. Waits up to 300 ms for the progress engine.
  std::string dump() override;
  // Returns the state of this process as JSON: host, pid, context and groups. The groups are those
  // of Dispatcher::snapshot(), or null if the progress engine did not answer. With kWithOps it also
  // has ops, as OpLog::json(), and with kWithStatistics statistics, as Dispatcher::statistics().
  // With kWithStack it has the Python stack of the main thread. Waits up to 150 ms for the progress
  // engine, and up to 100 ms for the main thread.
  std::string snapshot(uint8_t request) override;
  // Implement ControlDelegate. The first waits up to 50 ms for the progress engine.
  std::string sample_calls(Duration paused) override;
  void on_calls(uint64_t context_id, ConstBytes sample, TimePoint asked, TimePoint now) override;
  void on_calls_complete(TimePoint now) override;
  uint64_t activity() const override {
    return statistics_.ops_completed.load(std::memory_order_relaxed);
  }
  // Records what the ops of all groups do from this call on; null ends that. Returns false if
  // another recorder is active, or if the progress engine does not answer.
  bool record(std::shared_ptr<TraceRecorder> recorder);

 private:
  Context(ContextOptions options, std::shared_ptr<const TlsKey> tls_key);
  Duration peer_timeout() const;
  // Starts the parts of the Context. After an error the destructor stops those that run.
  Error start();
  // A transport that is open. One that connects hosts is opened once for each set of devices.
  struct Opened {
    Transport* transport;  // owned by the progress engine
    std::string devices;   // empty: it serves any network
  };

  // Opens the transport to this process if it is the first.
  Error open_self() RINGDIST_REQUIRES(mutex_);
  // Opens those transports that are missing; see entry().
  Error open_transports(bool late, const std::string& wanted, const Network& network)
      RINGDIST_REQUIRES(mutex_);
  // Passes transports to the progress engine, and waits for that.
  Error open(std::vector<std::unique_ptr<Transport>> made, const std::string& devices)
      RINGDIST_REQUIRES(mutex_);
  // Returns true if that transport is open for these devices. One within a host serves any.
  bool is_open(const TransportRow& row, const std::string& devices) const RINGDIST_REQUIRES(mutex_);
  // Returns the address at which the control plane listens on `ip`; listens there if it does not
  // yet.
  Result<std::string> listen(const std::string& ip) RINGDIST_REQUIRES(mutex_);
  // Does so for all interfaces of the network. Leaves out further ones where it cannot listen.
  Result<std::vector<std::string>> listen_on(const Network& network) RINGDIST_REQUIRES(mutex_);

  // DispatcherDelegate
  bool run_on_pool(std::function<void()> task) override {
    return !process_ends_ && pool_.run_callbacks(std::move(task));
  }
  void flood(const Notice& notice) override { control_->flood(notice.encode()); }

  // ControlDelegate
  void on_process_lost(uint64_t context_id, const Error& cause) override;
  void on_control_failed(const Error& cause) override;
  void on_process_left(uint64_t context_id) override;
  void on_flood(uint64_t origin, std::span<const std::byte> payload) override;
  void on_membership_stream(FramedSocket stream, const ControlHello& hello,
                            LinkKind kind) override {
    assembly_->adopt(std::move(stream), hello, kind);
  }
  void on_data_socket(Stream socket, ConstBytes hello) override {
    data_port_->adopt(std::move(socket), hello);
  }

  const ContextOptions options_;
  const ContextId id_;
  const std::shared_ptr<const TlsKey> tls_key_;  // null without credentials
  Statistics statistics_;
  TaskPool pool_;
  const std::shared_ptr<DataPort> data_port_ = std::make_shared<DataPort>();
  std::unique_ptr<ProgressEngine> progress_;
  std::unique_ptr<MembershipService> assembly_;
  std::unique_ptr<ControlThread> control_;
  std::string host_name_;
  // The next three: control thread only.
  TcpLinks tcp_links_;
  StragglerDetector stragglers_;
  SlowLinkDetector slow_links_;

  // Not held in calls that wait for the progress engine, except in open(). No callback of the
  // progress engine takes it, so that wait cannot be a deadlock.
  std::mutex mutex_;
  std::vector<Opened> opened_ RINGDIST_GUARDED_BY(mutex_);
  // By host that the route leads to.
  std::map<std::string, Network> networks_ RINGDIST_GUARDED_BY(mutex_);
  std::map<std::string, std::string> listens_ RINGDIST_GUARDED_BY(mutex_);  // by ip, with ports
  std::string service_ip_ RINGDIST_GUARDED_BY(mutex_);
  std::map<const void*, GroupCloser> leavers_ RINGDIST_GUARDED_BY(mutex_);  // by key
  // Live processes of this host that are in our groups.
  std::set<ContextId> met_ RINGDIST_GUARDED_BY(mutex_);
  size_t descriptors_alone_ RINGDIST_GUARDED_BY(mutex_) = 0;  // in use before any peer connected
  std::map<ContextId, Error> lost_ RINGDIST_GUARDED_BY(mutex_);
  std::set<ContextId> left_ RINGDIST_GUARDED_BY(mutex_);
  bool open_ RINGDIST_GUARDED_BY(mutex_) = false;  // the fast transports are open
  bool shut_down_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::atomic<bool> process_ends_{false};
  std::atomic<bool> renumbered_{false};
  ForkMark mark_;
};

}  // namespace ringdist
