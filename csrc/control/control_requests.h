// Pending requests to the control plane: callers of other threads that wait for a host proof or for
// a group. Each request gets exactly one answer, in every case: a result of RequestEvaluator or the
// end of the control plane. Control thread only.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "control/control_connection.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"

namespace ringdist {

// Decides whether a request can be answered at present: whether a process shares this host, whether
// a group is linked, and whether all of its members are. Its functions return nothing while there
// is no answer, success as an empty Error, or a failure. Control thread only.
class RequestEvaluator {
 public:
  // `id` is this process. The references must outlive the object.
  RequestEvaluator(uint64_t id, ControlPeerTable& processes, const ControlHistory& history,
                   const FormationBarrier& formation_barrier, const ConnectionView& connections)
      : id_(id),
        processes_(processes),
        history_(history),
        formation_barrier_(formation_barrier),
        connections_view_(connections) {}

  // Host proof: success once the process has answered on its abstract socket. `who` is its name in
  // errors. If `expired`, the answer is kTimeout instead of nothing, here and below.
  std::optional<Error> proof(uint64_t id, const std::string& who, bool expired);
  // Success once all links that the group needs of this process are up. The answer is kPeerLost if
  // a member was lost before it had formed the group, or if a peer refuses or does not listen.
  std::optional<Error> links(uint64_t nonce, const ControlGroup& group, bool expired);
  // Success once all members have connected, except those that have departed. The engine reports
  // the departures.
  std::optional<Error> formed(uint64_t nonce, const ControlGroup& group, bool expired) const;

 private:
  // Returns the error for a peer that is not connected, if there is one already.
  std::optional<Error> missing(const ControlGroup& group, uint64_t id, LinkKind kind, bool expired);

  const uint64_t id_;
  ControlPeerTable& processes_;
  const ControlHistory& history_;
  const FormationBarrier& formation_barrier_;
  const ConnectionView& connections_view_;
};

// A request and its promise.
struct ControlRequest {
  enum class Kind : uint8_t {
    kProof,  // host proof: process `id` shares this host
    kGroup,  // group `id` is linked and all of its members are
  };

  Kind kind = Kind::kGroup;
  uint64_t id = 0;
  // Owned by the caller, which blocks until the answer has come.
  const CancellableDeadline* deadline = nullptr;
  std::shared_ptr<std::promise<Error>> answer;
};

// Queue of pending requests.
class ControlRequests {
 public:
  // Callback from within answer_ready().
  struct Delegate {
    virtual ~Delegate() = default;
    // All links that the group needs of this process are up, for the first time.
    virtual void on_linked(uint64_t nonce) = 0;
  };

  // Returns the answer to requests that come after stop().
  static Error stopped() {
    return Error(ErrorKind::kAborted, "the control plane has been stopped");
  }

  // The references must outlive the object.
  ControlRequests(ControlGroupTable& groups, ControlPeerTable& processes, RequestEvaluator& answers,
                  Delegate& delegate)
      : groups_(groups), processes_(processes), evaluator_(answers), delegate_(delegate) {}

  // Accepts a host proof. The peer's abstract socket is `unix_name`.
  void prove(const ControlRequest& request, const std::string& unix_name);
  // Accepts a group request, and then calls `begin` to join the group.
  template <typename Begin>
  void connect(const ControlRequest& request, Begin&& begin) {
    if (accept(request)) begin();
  }

  bool empty() const { return waiting_.empty(); }
  // Returns the processes with a pending host proof.
  std::vector<uint64_t> proofs() const;
  // Returns true if that process is one of them.
  bool proving(uint64_t process) const;
  // Answers the requests that can be answered.
  void answer_ready(TimePoint now);
  // Answers all requests, also later ones, with stopped().
  void stop();

 private:
  // Queues a request. After stop() it answers the request instead, and returns false.
  bool accept(const ControlRequest& request);
  // Returns the answer, or nothing so far.
  std::optional<Error> answer_to(const ControlRequest& request, TimePoint now);
  std::optional<Error> group_answer(const ControlRequest& request, TimePoint now);

  ControlGroupTable& groups_;
  ControlPeerTable& processes_;
  RequestEvaluator& evaluator_;
  Delegate& delegate_;
  std::vector<ControlRequest> waiting_;
  bool stopped_ = false;
};

}  // namespace ringdist
