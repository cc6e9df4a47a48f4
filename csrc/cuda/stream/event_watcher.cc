#include "cuda/stream/event_watcher.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace ringdist::gpu {
namespace {

using KeptAlive = std::vector<std::shared_ptr<void>>;

// Interval of WatchedOp::check for one op.
constexpr Duration kCheckEvery = Milliseconds(50);
// Shortest and longest pause between two polls. The pause doubles while nothing changes.
constexpr auto kShortest = std::chrono::microseconds(20);
constexpr auto kLongest = std::chrono::microseconds(500);

// Keeps memory until the process ends, because the device may still use it.
void keep_for_good(KeptAlive held) {
  static std::mutex mutex;
  static auto* const kKept = new std::vector<KeptAlive>();
  std::lock_guard lock(mutex);
  kKept->push_back(std::move(held));
}

}  // namespace

EventWatcher::EventWatcher(CudaApi& cuda, Polls polls) : cuda_(cuda) {
  if (polls == Polls::kItself) thread_ = std::thread([this] { run(); });
}

EventWatcher::~EventWatcher() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  added_.notify_one();
  if (thread_.joinable()) thread_.join();
  for (auto* left : {&watched_, &fresh_})
    for (Watched& watched : *left) keep_for_good(std::move(watched.what.held));
}

void EventWatcher::add(WatchedOp what) {
  {
    std::lock_guard lock(mutex_);
    fresh_.push_back({std::move(what), Clock::now() + kCheckEvery});
  }
  added_.notify_one();
}

void EventWatcher::run() {
  pthread_setname_np(pthread_self(), "ringdist-cuda");
  auto pause = kShortest;
  for (;;) {
    const bool waits = poll();
    std::unique_lock lock(mutex_);
    if (stops_) return;
    if (!fresh_.empty()) {
      pause = kShortest;
    } else if (waits) {
      pause = std::min(2 * pause, kLongest);
      added_.wait_for(lock, pause);
    } else {
      pause = kShortest;
      added_.wait(lock, [this] { return stops_ || !fresh_.empty(); });
    }
  }
}

bool EventWatcher::poll() {
  {
    std::lock_guard lock(mutex_);
    std::ranges::move(fresh_, std::back_inserter(watched_));
    fresh_.clear();
  }
  std::erase_if(watched_, [this](Watched& watched) { return finish_if_reached(watched); });
  return !watched_.empty();
}

bool EventWatcher::finish_if_reached(Watched& watched) {
  const Result<bool> reached = cuda_.reached(watched.what.event.get());
  if (!reached.ok() || reached.value()) {
    tell(watched, reached.ok() ? watched.what.check() : reached.error());
    return true;
  }
  if (Clock::now() < watched.next_check) return false;
  watched.next_check = Clock::now() + kCheckEvery;
  // The op is reported at once, but watched on: the device may use its memory until the event.
  if (const Error error = watched.what.check()) tell(watched, error);
  return false;
}

void EventWatcher::tell(Watched& watched, const Error& error) {
  if (const auto ended = std::exchange(watched.what.ended, nullptr)) ended(error);
}

}  // namespace ringdist::gpu
