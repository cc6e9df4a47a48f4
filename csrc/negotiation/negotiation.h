// Operations called by name: each rank of a group calls them in an order of its own, from any
// thread, and all run them in one order, several at a time where they are small. Horovod's
// controller (Sergeev, Del Balso, arXiv 1802.05799) is the model; here nothing is polled
// (negotiator.h).
//
// Any thread, without the GIL.
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

class Negotiation {
 public:
  // `group` is for its calls alone. All ranks call it alike. Errors: as of
  // Communicator::duplicate().
  static Result<std::shared_ptr<Negotiation>> create(std::shared_ptr<Communicator> group,
                                                     NegotiationOptions options);
  // Without close(): waits for nothing, and open calls end with kAborted.
  ~Negotiation() = default;
  Negotiation(const Negotiation&) = delete;
  Negotiation& operator=(const Negotiation&) = delete;

  // The op that ends when the call has been run. Its error: kMismatch, ranks disagree on it, or one
  // that it needs has joined, and others go on; else all have ended. `will_wait`: as of
  // Communicator::submit(). Errors: kInvalidArgument, the name is taken, or this rank has joined;
  // else nobody can be asked any more, and why. Nothing was sent then.
  Result<std::shared_ptr<Op>> call(NamedCall call, bool will_wait);
  // The name may be used again once `end`, which call() returned for it, has ended. Idempotent.
  void release(const std::string& name, const Op& end);

  // This rank makes no calls until all have joined; what others call until then it takes part in
  // (joined_contribution.h), where that can be.
  Result<NegotiationController::Join> join(FillOnDevice on_device = nullptr);

  // On rank 0: NegotiatorOptions of what is decided from now on.
  Error tune(int64_t fusion_bytes, int batches_in_flight);
  // On rank 0: all record what their calls do, until it stops that. Then a file for each rank is
  // beside `path` (Timeline::part_of), but for a rank that could not write. Errors: as of
  // NegotiationController, and that of the group; the op's, too. It waits for the ranks to be
  // there.
  Error start_timeline(const std::string& path, bool marks_cycles);
  Result<std::shared_ptr<Op>> stop_timeline();

  // As of Communicator.
  bool wait(const Op& op, std::optional<Milliseconds> timeout) { return group_->wait(op, timeout); }
  Error failure() const;
  // Waits for what all ranks have called, and a little (Context::kFinishTime) for what not all
  // have; that ends with kAborted. Then leaves. Idempotent.
  void close();

  Communicator& group() { return *group_; }

 private:
  Negotiation(std::shared_ptr<Communicator> group, std::shared_ptr<NegotiationController> slot,
              std::shared_ptr<Communicator> letters);
  std::shared_ptr<Op> make_end(Milliseconds timeout) const;
  template <typename Task>
  Error hand_over(Task task, bool will_wait);

  const std::shared_ptr<Communicator> group_;
  const std::shared_ptr<NegotiationController> slot_;
  const std::shared_ptr<Communicator> letters_;  // the sibling, in which the seat is

  std::mutex mutex_;
  struct Taken {
    std::shared_ptr<Op> end;
    bool is_released = false;  // the name is free when the op has ended
  };
  std::map<std::string, Taken> taken_ RINGDIST_GUARDED_BY(mutex_);
  std::shared_ptr<Op> joined_ RINGDIST_GUARDED_BY(mutex_);  // the last join's end
};

}  // namespace ringdist
