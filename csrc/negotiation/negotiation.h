// Calls operations by name. Each rank of a group calls them in an order of its own, from any
// thread. All ranks run them in one common order, and small ones are fused. The model is Horovod's
// controller (Sergeev, Del Balso, arXiv 1802.05799), but without polling (order/negotiator.h).
//
// Any thread may call it, without the GIL.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/thread_annotations.h"
#include "engine/communicator.h"
#include "negotiation/named_call.h"
#include "negotiation/negotiation_controller.h"

namespace ringdist {

// One rank's interface to named calls in one group. The work is done by NegotiationController on a
// lane.
class Negotiation {
 public:
  // Creates the negotiation. `group` must be used for named calls only. All ranks must call this in
  // the same order. Errors are those of Communicator::duplicate().
  static Result<std::shared_ptr<Negotiation>> create(std::shared_ptr<Communicator> group,
                                                     NegotiationOptions options);
  // Does not wait. Without close(), open calls end with kAborted.
  ~Negotiation() = default;
  Negotiation(const Negotiation&) = delete;
  Negotiation& operator=(const Negotiation&) = delete;

  // Starts a call. Returns an op that ends when the call has been run.
  //
  // If ranks disagree on the call, or it needs a joined rank, that op ends with kMismatch, and the
  // group continues. With any other error the group has ended. `will_wait` is that of
  // Communicator::submit().
  //
  // Error kInvalidArgument: the name is in use, or this rank has joined. Other errors mean that the
  // group has failed. After an error, nothing was sent.
  Result<std::shared_ptr<Op>> call(NamedCall call, bool will_wait);
  // Frees the name for reuse once `end` has ended, which must be the op of call(). May be called
  // again.
  void release(const std::string& name, const Op& end);

  // Declares that this rank makes no calls until all ranks have joined. It contributes neutral
  // values to calls of other ranks where that is possible (joined_contribution() in
  // call_content.h).
  Result<NegotiationController::Join> join(FillOnDevice on_device = nullptr);

  // Changes NegotiatorOptions for later decisions. It has an effect on rank 0 only, once the group
  // has formed. `fusion_bytes` below 0 and `batches_in_flight` below 1 fail a check.
  Error tune(int64_t fusion_bytes, int batches_in_flight);
  // Starts a timeline on rank 0: all ranks record their calls until stop_timeline(). Afterwards
  // there is a file for each rank beside `path` (Timeline::part_of), except for ranks that could
  // not write.
  //
  // Errors are those of NegotiationController and of the group, and kTimeout if the lane does not
  // answer within Context::kFinishTime. stop_timeline() returns an op that
  // waits for the files of all ranks.
  Error start_timeline(const std::string& path, bool marks_cycles);
  Result<std::shared_ptr<Op>> stop_timeline();

  // See Communicator.
  bool wait(const Op& op, std::optional<Milliseconds> timeout) { return group_->wait(op, timeout); }
  Error failure() const;
  // Waits for calls that all ranks have made, and for a limited time (Context::kFinishTime) for
  // others, which then end with kAborted. Then leaves the group. May be called again.
  void close();

  Communicator& group() { return *group_; }

 private:
  Negotiation(std::shared_ptr<Communicator> group, std::shared_ptr<NegotiationController> slot,
              std::shared_ptr<Communicator> service_channel);
  std::shared_ptr<Op> make_end(Milliseconds timeout) const;
  // Runs a task on the lane.
  template <typename Task>
  Error hand_over(Task task, bool will_wait);

  const std::shared_ptr<Communicator> group_;
  const std::shared_ptr<NegotiationController> slot_;
  // the duplicate that carries the messages of `slot_`
  const std::shared_ptr<Communicator> letters_;

  std::mutex mutex_;
  // A name in use.
  struct Taken {
    std::shared_ptr<Op> end;
    bool is_released = false;  // the name becomes free when the op has ended
  };
  std::map<std::string, Taken> taken_ RINGDIST_GUARDED_BY(mutex_);
  std::shared_ptr<Op> joined_ RINGDIST_GUARDED_BY(mutex_);  // end of the last join
};

}  // namespace ringdist
