// What becomes of calls by name, recorded: their timeline (timeline/timeline.h), and whatever else
// records this process.
//
// Every call comes with the lane's driver token held.
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

class CallTimeline final : private TimelineDelegate {
 public:
  using Send = std::function<void(int rank, std::vector<std::byte> letter)>;

  using Discard = std::function<void(std::shared_ptr<void>)>;

  // `group`: its name. `discard`: does not throw.
  CallTimeline(Dispatcher& dispatcher, const GroupServiceDelegate& post, int rank,
               std::string group, Send send, Discard discard);

  // As of Timeline.
  Error start(const std::string& path, bool marks_cycles);
  // `end` ends when all is there.
  void stop(std::shared_ptr<Op> end);
  Error receive(int rank, ConstBytes letter) {
    return timeline_.receive(rank, letter, Clock::now());
  }
  bool is_busy() const { return timeline_.is_busy(); }
  bool gathers() const { return gathering_ != nullptr; }
  void end(const Error& cause) noexcept;

  // A batch is about to run;
  void begin_batch();
  // in it that call, which this rank has made then; `last`: the rank that did so last.
  void add(const NamedCall& call, TimePoint made, int last, FusedCalls& batch);
  // It has ended.
  void end_batch(const FusedCalls& batch, const Error& error);

 private:
  // TimelineDelegate
  void send_timeline(int rank, std::vector<std::byte> letter) override {
    send_(rank, std::move(letter));
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
  std::shared_ptr<TraceRecorder> own_;  // of the timeline
  std::shared_ptr<Op> gathering_;       // ends when it is there
};

}  // namespace ringdist
