// Records what happens to named calls, for the timeline (timeline/timeline.h) and for any other
// recorder of this process.
//
// All functions must be called while the lane's progress lock is held.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/group/group_service.h"
#include "engine/progress/dispatcher.h"
#include "negotiation/named_call.h"
#include "negotiation/timeline/timeline.h"

namespace ringdist {

// Connects NegotiationController, Timeline and the dispatcher's recorder.
class CallTimeline final : private TimelineDelegate {
 public:
  // Sends a message to another rank.
  using Send = std::function<void(int rank, std::vector<std::byte> message)>;

  // Destroys an object on another thread.
  using Discard = std::function<void(std::shared_ptr<void>)>;

  // `group` is the group's name. `discard` must not throw.
  CallTimeline(Dispatcher& dispatcher, const GroupServiceDelegate& post, int rank,
               std::string group, Send send, Discard discard);

  // Starts the timeline; see Timeline::start. Only rank 0 may call it.
  Error start(const std::string& path, bool marks_cycles);
  // Stops the timeline. `end` completes when rank 0 has all files; at once if no timeline is on.
  void stop(std::shared_ptr<Op> end);
  // Handles a timeline message from `rank`.
  Error receive(int rank, ConstBytes message) {
    return timeline_.receive(rank, message, Clock::now());
  }
  // Returns true if the timeline is on, or its file is still needed by rank 0.
  bool is_busy() const { return timeline_.is_busy(); }
  // Returns true while the files are being collected after stop().
  bool gathers() const { return gathering_ != nullptr; }
  // Ends the timeline when the group ends.
  void end(const Error& cause) noexcept;

  // Records that a batch is about to run.
  void begin_batch();
  // Records a call of the batch. `made` is the time of this rank's call, and `last` is the rank
  // that called last.
  void add(const NamedCall& call, TimePoint made, int last, FusedCalls& batch);
  // Records the end of the batch and its error.
  void end_batch(const FusedCalls& batch, const Error& error);

 private:
  // TimelineDelegate
  void send_timeline(int rank, std::vector<std::byte> message) override {
    send_(rank, std::move(message));
  }
  bool record(std::shared_ptr<TraceRecorder> recorder) override;
  void gathered(const Error& error) override;
  void discard(std::shared_ptr<void> what) noexcept override { discard_(std::move(what)); }

  Dispatcher& dispatcher_;
  const int rank_;
  const std::string group_;
  const Send send_;
  const Discard discard_;
  Timeline timeline_;
  std::shared_ptr<TraceRecorder> own_;  // recorder of the timeline
  std::shared_ptr<Op> gathering_;       // the op that stop() received
};

}  // namespace ringdist
