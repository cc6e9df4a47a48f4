#include "negotiation/call_timeline.h"

#include <cctype>
#include <utility>

namespace ringdist {
namespace {

std::string upper_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

CallTimeline::CallTimeline(Dispatcher& dispatcher, const GroupServiceDelegate& post, int rank,
                           std::string group, Send send, Discard discard)
    : dispatcher_(dispatcher),
      rank_(rank),
      group_(std::move(group)),
      send_(std::move(send)),
      discard_(std::move(discard)),
      timeline_(*this, post.topology(), rank, post.describe_rank(rank)) {}

Error CallTimeline::start(const std::string& path, bool marks_cycles) {
  if (rank_ != 0) return {ErrorKind::kInvalidArgument, "ringdist: timeline: rank 0 starts it"};
  return timeline_.start(path, marks_cycles, Clock::now());
}

void CallTimeline::stop(std::shared_ptr<Op> end) {
  if (!timeline_.is_on()) return dispatcher_.finish_op(end, {});
  gathering_ = std::move(end);
  timeline_.stop();
}

bool CallTimeline::record(std::shared_ptr<TraceRecorder> recorder) {
  if (dispatcher_.recorder() != own_) return false;
  dispatcher_.set_recorder(recorder);
  own_ = std::move(recorder);
  return true;
}

void CallTimeline::gathered(const Error& error) {
  if (gathering_) dispatcher_.finish_op(std::exchange(gathering_, nullptr), error);
}

void CallTimeline::end(const Error& cause) noexcept {
  if (gathering_) dispatcher_.finish_op(std::exchange(gathering_, nullptr), cause);
  try {
    timeline_.end();
  } catch (...) {  // out of memory: a part of the recording is lost
  }
}

void CallTimeline::begin_batch() {
  if (!timeline_.is_on()) return;
  const TimePoint now = Clock::now();
  timeline_.compare_clocks(now);
  if (timeline_.marks_cycles()) own_->add({"cycles", "CYCLE_START", "", now, now});
}

// Each name has a row, as in Horovod, and calls without a name share one. In other recordings than
// the timeline, rows begin with the group's name.
void CallTimeline::add(const NamedCall& call, TimePoint made, int last, FusedCalls& batch) {
  const auto& recorder = dispatcher_.recorder();
  if (!recorder) return;
  const bool has_none = call.name.starts_with(call.operation + ".noname.");
  std::string row = call.operation + "." + (has_none ? "noname" : call.name);
  if (recorder != own_) row = group_ + " " + row;
  const std::string what = upper_case(call.operation);
  const TimePoint now = Clock::now();
  recorder->add({row, "NEGOTIATE_" + what, "last: rank " + std::to_string(last), made, now});
  batch.add_span({row, what, "", now, now});
}

void CallTimeline::end_batch(const FusedCalls& batch, const Error& error) {
  const auto& recorder = dispatcher_.recorder();
  if (!recorder) return;
  for (TraceSpan span : batch.spans()) {
    span.end = Clock::now();
    if (error) span.detail = error.message();
    recorder->add(span);
  }
}

}  // namespace ringdist
