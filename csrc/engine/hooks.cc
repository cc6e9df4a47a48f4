#include "engine/hooks.h"

namespace ringdist {

void Hooks::call_failed() {
  {
    std::unique_lock lock(mutex_);
    if (caller_) {
      if (*caller_ != std::this_thread::get_id()) returned_.wait(lock, [this] { return done_; });
      return;
    }
    if (ended_) return;
    caller_ = std::this_thread::get_id();
  }
  try {
    failed.call();
  } catch (...) {
    // Somebody else's function; the group's own error is the one to be seen.
  }
  std::lock_guard lock(mutex_);
  done_ = true;
  returned_.notify_all();
}

void Hooks::end(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  ended_ = true;
  if (caller_ && *caller_ != std::this_thread::get_id())
    returned_.wait_until(lock, deadline, [this] { return done_; });
}

Completion::Completion(std::shared_ptr<Hooks> hooks) : hooks_(std::move(hooks)) {
  static std::atomic<uint64_t> last{0};
  key_ = ++last;
}

void Completion::report() const {
  if (!wanted()) return;
  const std::chrono::duration<float, std::milli> spent = Clock::now() - started_;
  hooks_->succeeded.call(key_, spent.count());
}

}  // namespace ringdist
