// Snapshots of a job. A client sends a request to one process, and gets the states of all processes
// in its groups. That process passes a search on over the open connections, as do the others. Each
// answers over the connection by which the search has first reached it. So the answers take a way
// on which all processes work, and the size of a snapshot grows with the number of processes only.
//
// Control thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/control_connection.h"
#include "control/control_delegate.h"
#include "control/control_frames.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"

namespace ringdist {

// Answers clients, and passes searches and answers on for other processes. A client gets one
// kSnapshot frame for each process that answers, and then kSnapshotEnd. That is an object with
// version (1), collector (context id of this process), seconds (duration), and missing.
//
// The latter is a list of the processes without an answer. Each has context, host, pid, state
// ("stopped", "silent", "lost" or "left"), and groups, a list with id and rank. Optional members
// are silent_for, in seconds, and cause.
class SnapshotRelay {
 public:
  // Time limit of a snapshot. Processes that have not answered by then count as silent.
  static constexpr Duration kLimit = Milliseconds(600);

  // `id` is this process. The references must outlive the object.
  SnapshotRelay(uint64_t id, ConnectionSender& sender, const ControlHistory& history,
                const ControlGroupTable& groups, const ControlPeerTable& processes,
                ControlDelegate& owner)
      : id_(id),
        sender_(sender),
        history_(history),
        groups_(groups),
        processes_(processes),
        owner_(owner) {}

  // Starts a snapshot for a client. `request` has the bits kWholeJob, kWithOps,
  // kWithStatistics and kWithStack.
  // The connection closes when the answer has been sent, or at once if there are too many clients.
  void begin(ControlConnection& client, uint8_t request, TimePoint now);
  // Collects samples of calls, which the owner gets, once a second at most. Has no effect if this
  // process has called nothing, or is not the one that compares calls. `paused` is the time for
  // which this process has stood still so far. Call it at each tick.
  void sample_calls(Duration paused, TimePoint now);
  // Handles a search that came over a connection: passes it on and answers it, once. If there are
  // too many, new ones are ignored.
  void on_search(ControlConnection& from, const Frame& frame, Duration paused, TimePoint now);
  // Handles an answer to a search of this process, or passes it on.
  void on_answer(const Frame& frame, TimePoint now);
  // Ends the snapshots of this process that are late.
  void end_late(TimePoint now);
  // Returns true while a snapshot of this process waits for answers.
  bool waits() const {
    return std::ranges::any_of(collections_,
                               [](const auto& one) { return one.client.has_value(); });
  }

 private:
  // A snapshot that a client of this process waits for, or samples of calls.
  struct Collection {
    SnapshotId id;
    // Key of the client's connection; empty for samples of calls, which the owner gets.
    std::optional<uint64_t> client;
    std::set<uint64_t> expected;  // processes that have not answered
    std::set<uint64_t> stopped;   // found stopped by another process
    TimePoint began;
  };

  // Returns true if this process has rank 0 of the largest group, so that one process of a job
  // compares calls.
  bool compares_calls() const;
  // Returns the other processes of all groups of this process.
  std::set<uint64_t> members() const;
  // Sends a search to all members that have not got it from `from`, which may be null.
  void pass_on(const SnapshotSearch& search, const ControlConnection* from);
  // Returns the state of this process. If that took long before, the same text is returned for
  // twice as long, because the control thread also sends heartbeats. If it lacks what is requested
  // now, one with both is made.
  std::string state_here(uint8_t request);
  // Returns true if two processes share a formed group with this one.
  bool share_group(uint64_t one, uint64_t other) const;
  // Returns the processes of this host that are stopped, as far as they are visible here.
  std::vector<uint64_t> stopped_here() const;
  // Ends a snapshot if all processes have answered, or if `late`. Returns true if it has ended.
  bool end_if_complete(const Collection& collection, bool late, TimePoint now);
  std::string end_text(const Collection& collection, TimePoint now) const;
  std::string missing_text(const Collection& collection, uint64_t process, TimePoint now) const;
  // Returns the connection with that key, or null if it has ended.
  ControlConnection* connection(uint64_t key);

  const uint64_t id_;
  ConnectionSender& sender_;
  const ControlHistory& history_;
  const ControlGroupTable& groups_;
  const ControlPeerTable& processes_;
  ControlDelegate& owner_;
  std::string state_;          // result of state_here()
  uint8_t state_request_ = 0;  // the bits that it was made for
  TimePoint state_valid_until_;
  TimePoint sampled_at_{};  // when it last looked for calls to sample
  uint64_t activity_ = 0;   // activity() of the owner then
  uint64_t count_ = 0;      // snapshots of this process
  std::list<Collection> collections_;
  // Searches of the last seconds, and the key of the connection by which each came first.
  std::map<SnapshotId, uint64_t> reverse_paths_;
  std::deque<std::pair<TimePoint, SnapshotId>> seen_;  // the same searches, oldest first
};

}  // namespace ringdist
