#include "engine/op/op.h"

#include <utility>

#include "kernel/find_nan.h"

namespace ringdist {

std::string_view op_name(Collective kind, bool sends) {
  if (kind != Collective::kPointToPoint) return collective_name(kind);
  return sends ? "send" : "recv";
}

std::optional<std::string> find_nan_read(const OpRequest& request, int rank, uint64_t number) {
  const bool sends = request.envelope && request.envelope->sends;
  const bool from_root =
      request.kind == Collective::kBroadcast || request.kind == Collective::kScatter;
  if (request.envelope ? !sends : from_root && request.root != rank) return std::nullopt;
  const Buffer& values = traits_of(request.kind).in_place ? request.output : request.input;
  int64_t begin = 0, found = -1;
  values.for_each(0, values.count(), [&](Bytes piece) {
    const int64_t at = found < 0 ? find_nan(request.dtype, piece) : -1;
    if (at >= 0) found = begin + at;
    begin += static_cast<int64_t>(piece.size() / values.element_size());
  });
  if (found < 0) return std::nullopt;
  return "element " + std::to_string(found) + " of the input of " +
         std::string(op_name(request.kind, sends)) +
         (request.envelope ? "" : " #" + std::to_string(number));
}

std::string Op::describe() const {
  if (const auto& envelope = request.envelope) {
    const std::string other = envelope->peer == Envelope::kAnySource
                                  ? "any rank"
                                  : "rank " + std::to_string(envelope->peer);
    return (envelope->sends ? "send to " : "recv from ") + other + ", tag " +
           std::to_string(envelope->tag) + " (" + std::string(dtype_name(request.dtype)) + ", " +
           std::to_string(request.count) + (request.count == 1 ? " element" : " elements") +
           (called.on_device() ? ", on cuda)" : ")");
  }
  const std::string text = called.describe();
  const std::string name = text.substr(0, text.find('('));
  const std::string rest = text.substr(name.size());  // empty for a barrier
  return name + " #" + std::to_string(number) + (rest.empty() ? "" : " ") + rest;
}

// A push and the exchange of the state decide the race with finish(): either the state was still
// open and finish() sees kWatched, or the callback runs here.
void Op::when_finished(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    callbacks_.push_back(std::move(callback));
    State before = State::kOpen;
    if (state_.compare_exchange_strong(before, State::kWatched) || before == State::kWatched)
      return;
    callback = std::move(callbacks_.back());
    callbacks_.pop_back();
  }
  callback();
}

bool Op::finish(Error error) {
  if (finished()) return false;
  error_ = std::move(error);
  const bool calls_back = state_.exchange(State::kFinished) == State::kWatched;
  // on_end is called after the state is stored. Code that prepares for the call and then finds the
  // op unfinished is therefore certain to get it.
  try {
    if (request.on_end) request.on_end(error_);
  } catch (...) {  // an exception must not keep waiters from being notified
  }
  return calls_back;
}

std::vector<std::function<void()>> Op::take_callbacks() {
  std::lock_guard lock(mutex_);
  return std::exchange(callbacks_, {});
}

}  // namespace ringdist
