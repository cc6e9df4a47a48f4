#include "engine/hooks.h"

namespace ringdist {
namespace {

constexpr auto kTimeLimit = std::chrono::seconds(40);  // PyTorch's flight recorder takes up to 30 s

// Returns the next key of a call; 0 is never used.
uint64_t next_key() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

void Hooks::call_failed() {
  {
    std::unique_lock lock(mutex_);
    if (caller_) return await(lock);
    if (ended_) return;
    caller_ = std::this_thread::get_id();
  }
  failed.call();
  std::lock_guard lock(mutex_);
  done_ = true;
  returned_.notify_all();
}

void Hooks::end(bool waits) {
  std::unique_lock lock(mutex_);
  ended_ = true;
  if (caller_ && waits) await(lock);
}

void Hooks::await(std::unique_lock<std::mutex>& lock) {
  if (*caller_ != std::this_thread::get_id())
    returned_.wait_until(lock, Clock::now() + kTimeLimit, [this] { return done_; });
}

Completion::Completion(std::shared_ptr<Hooks> hooks, size_t parts)
    : hooks_(std::move(hooks)), key_(next_key()), left_(parts) {}

void Completion::arrive() {
  if (--left_ > 0) return;
  milliseconds_ = milliseconds();
  hooks_->succeeded.call(key_, milliseconds_);
}

float Completion::milliseconds() const {
  if (const float known = milliseconds_; known >= 0) return known;
  return std::chrono::duration<float, std::milli>(Clock::now() - started_).count();
}

}  // namespace ringdist
