// All state that is per process: the lane, the transports, the control plane, the task pool, and a
// random id by which other processes know it. The module has one; tests make one per rank.
//
// Any thread. Owned by shared_ptr: groups hold it.
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
#include "engine/context/task_pool.h"
#include "engine/op/statistics.h"
#include "engine/progress/progress_engine.h"
#include "membership/membership_service.h"
#include "os/fork_guard.h"
#include "rendezvous/rank_info.h"
#include "transport/registry.h"

namespace ringdist {

struct ContextOptions {
  Config config;
  std::string store_host;                       // of groups that name none
  std::vector<std::string> transports;          // by preference; empty: process_transports()
  std::shared_ptr<LocalNetwork> local_network;  // for transport `local`
};

class Context final : private ControlDelegate, private DispatcherDelegate {
 public:
  static Result<std::shared_ptr<Context>> create(ContextOptions options);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ContextId id() const { return id_; }
  const Config& config() const { return options_.config; }
  ProgressEngine& progress() { return *progress_; }
  Control& control() { return *control_; }
  MembershipService& assembly() { return *assembly_; }
  TaskPool& pool() { return pool_; }
  const Statistics& statistics() const { return statistics_; }
  bool forked() const { return mark_.forked(); }

  // How processes of other hosts reach this one in a group.
  struct Network {
    std::string ip;
    std::string devices;  // of it, and what else the user named, as UCX takes them
    bool loopback = false;
    bool guessed = false;
  };
  // By the route to `host`, or to ContextOptions::store_host. May block in the resolver, once.
  Result<Network> network(const std::optional<std::string>& host);
  // Returns what this process publishes for a group on that network. Listens there, and opens the
  // transports that open fast and the one that Config::transport names; if `late`, the rest, too.
  Result<RankInfo> entry(const Network& network, bool late);
  // Where services of this process are offered to others: an address of the last such network.
  std::string service_ip();
  // The transport to this process itself; opens no other one.
  Result<Transport*> to_self();
  // Whether there are descriptors for connections to these processes of this host besides those it
  // has met before. Error: kSystem, with the number.
  Error room_for(const std::vector<ContextId>& processes);
  // The transport to reach a peer by, ready to send: the first that both have, or `wanted`.
  Result<Transport*> reach(const RankInfo& peer, bool same_host, const std::string& wanted,
                           const Network& network);

  // Success if a process that listens there answers as that one: then this host is its, too. Takes
  // two seconds at most.
  Error prove_same_host(ContextId process, const std::string& unix_name);

  // Why that process is lost; success if it is not known to be.
  Error lost(ContextId context_id);
  // The same, or that it has left.
  Error departed(ContextId context_id);

  // How long an end waits for others: for a formation under way, for what was sent to arrive.
  static constexpr auto kFinishTime = std::chrono::seconds(2);
  // For leaving in good order. Groups add themselves while they are open.
  struct GroupCloser {
    std::function<void(NoticeKind, TimePoint until)> finish;  // waits for what is in flight
    std::function<void(NoticeKind)> leave;
    std::function<void()> end;  // of devices; what is in flight has failed
  };
  void add_leaver(const void* key, GroupCloser leaver);
  void remove_leaver(const void* key);

  // Leaves every group, when what was sent has arrived (two seconds at most), and stops all
  // threads. Idempotent; also the destructor's work. Callbacks that run longer are left behind.
  // `process_ends`: the process is about to end; other processes notice when it has.
  void shutdown(bool process_ends = false);

  std::string dump() override;
  // What the ops of all groups do from now on goes there; null: nowhere any more. False: it goes
  // somewhere else already.
  bool record(std::shared_ptr<TraceRecorder> recorder);

 private:
  explicit Context(ContextOptions options);
  Error start();
  // One that lies between hosts is opened once for each set of devices.
  struct Opened {
    Transport* transport;  // owned by the lane
    std::string devices;   // empty: it serves any network
  };

  Error open_self() RINGDIST_REQUIRES(mutex_);
  Error open_transports(bool late, const std::string& devices) RINGDIST_REQUIRES(mutex_);
  Error open(std::vector<std::unique_ptr<Transport>> made, const std::string& devices)
      RINGDIST_REQUIRES(mutex_);
  bool is_open(const TransportRow& row, const std::string& devices) const RINGDIST_REQUIRES(mutex_);
  Result<std::string> listen(const std::string& ip) RINGDIST_REQUIRES(mutex_);

  bool run_on_pool(std::function<void()> task) override;
  void flood(const Notice& notice) override;

  void on_process_lost(uint64_t context_id, const Error& cause) override;
  void on_process_left(uint64_t context_id) override;
  void on_flood(std::span<const std::byte> payload) override;
  void on_letters(FramedSocket stream, const ControlHello& hello, LinkKind kind) override;

  const ContextOptions options_;
  const ContextId id_;
  Statistics statistics_;
  TaskPool pool_;
  std::unique_ptr<ProgressEngine> progress_;
  std::unique_ptr<MembershipService> assembly_;
  std::unique_ptr<Control> control_;
  std::string host_name_;

  std::mutex mutex_;  // never held in a call to the lane that waits, but for open_transports()
  std::vector<Opened> opened_ RINGDIST_GUARDED_BY(mutex_);
  std::map<std::string, Network> networks_ RINGDIST_GUARDED_BY(mutex_);     // by host
  std::map<std::string, std::string> listens_ RINGDIST_GUARDED_BY(mutex_);  // by ip, with ports
  std::string service_ip_ RINGDIST_GUARDED_BY(mutex_);
  std::map<const void*, GroupCloser> leavers_ RINGDIST_GUARDED_BY(mutex_);
  std::set<ContextId> met_ RINGDIST_GUARDED_BY(mutex_);       // of this host, and live
  size_t descriptors_alone_ RINGDIST_GUARDED_BY(mutex_) = 0;  // before anybody knew of it
  std::map<ContextId, Error> lost_ RINGDIST_GUARDED_BY(mutex_);
  std::set<ContextId> left_ RINGDIST_GUARDED_BY(mutex_);
  bool open_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool shut_down_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::atomic<bool> process_ends_{false};
  ForkMark mark_;
};

}  // namespace ringdist
