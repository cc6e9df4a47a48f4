#include "negotiation/device_queue.h"

#include <functional>
#include <utility>

#include "base/current_exception.h"

namespace ringdist {
namespace {

// What all ranks refuse alike ends one call; of anything else others may not know.
bool ends_the_group(const Error& error) {
  return error && error.kind() != ErrorKind::kInvalidArgument &&
         error.kind() != ErrorKind::kNotSupported;
}

}  // namespace

Error DeviceQueue::add(std::vector<OpRequest> requests) {
  std::lock_guard lock(mutex_);
  // It waits for the mutex.
  if (!is_starting_ &&
      !group_->context().pool().run([self = shared_from_this()] { self->start_all(); }))
    return {ErrorKind::kAborted, "ringdist: this process has shut ringdist down"};
  is_starting_ = true;
  for (OpRequest& request : requests) waiting_.push_back(std::move(request));
  return {};
}

void DeviceQueue::start_all() {
  for (;;) {
    OpRequest next;
    {
      std::lock_guard lock(mutex_);
      is_starting_ = !waiting_.empty();
      if (!is_starting_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    start(std::move(next));
  }
}

void DeviceQueue::start(OpRequest request) {
  // An op that has its number when its device refuses it ends twice.
  auto ended = [self = shared_from_this(), tell = std::exchange(request.on_end, nullptr),
                told = false](const Error& error) mutable {
    if (std::exchange(told, true)) return;
    if (ends_the_group(error)) self->group_->fail(error);
    tell(error);
  };
  const auto once = std::make_shared<decltype(ended)>(std::move(ended));
  request.on_end = [once](const Error& error) { (*once)(error); };
  const Error error = [&]() -> Error {
    try {
      const auto group = devices();
      if (!group.ok()) return group.error();
      return group.value()->submit(std::move(request), /*will_wait=*/false).error();
    } catch (...) {
      return current_exception_error();
    }
  }();
  if (error) group_->context().progress().post([once, error] { (*once)(error); });
}

Result<std::shared_ptr<Communicator>> DeviceQueue::devices() {
  if (devices_) return devices_;
  auto made = group_->duplicate("/on-devices");
  if (made.ok()) devices_ = made.value();
  return made;
}

}  // namespace ringdist
