#include "engine/op/op.h"

#include <utility>

namespace ringdist {

std::string Op::describe() const {
  if (const auto& endpoint = request.endpoint) {
    const std::string other = endpoint->peer == Endpoint::kAnySource
                                  ? "any rank"
                                  : "rank " + std::to_string(endpoint->peer);
    return (endpoint->sends ? "send to " : "recv from ") + other + ", tag " +
           std::to_string(endpoint->tag) + " (" + std::string(dtype_name(request.dtype)) + ", " +
           std::to_string(request.count) + (request.count == 1 ? " element)" : " elements)");
  }
  const std::string text = fingerprint.describe();
  const std::string name = text.substr(0, text.find('('));
  const std::string rest = text.substr(name.size());  // a barrier has none
  return name + " #" + std::to_string(number) + (rest.empty() ? "" : " ") + rest;
}

void Op::when_finished(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!finished()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

bool Op::finish(Error error) {
  bool calls_back = false;
  {
    std::lock_guard lock(mutex_);
    if (finished()) return false;
    error_ = std::move(error);
    finished_.store(true, std::memory_order_release);
    calls_back = !callbacks_.empty();
  }
  // After the store: who registers for it and then finds the op unfinished will hear of it.
  try {
    if (!error_ && request.succeeded) request.succeeded();
  } catch (...) {  // who waits must hear of it all the same
  }
  return calls_back;
}

std::vector<std::function<void()>> Op::take_callbacks() {
  std::lock_guard lock(mutex_);
  return std::exchange(callbacks_, {});
}

}  // namespace ringdist
