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
  for (auto* left : {&entries_, &fresh_})
    for (Entry& entry : *left) keep_for_good(std::move(entry.what.held));
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
    std::ranges::move(fresh_, std::back_inserter(entries_));
    fresh_.clear();
  }
  std::erase_if(entries_, [this](Entry& entry) { return finish_if_reached(entry); });
  return !entries_.empty();
}

bool EventWatcher::finish_if_reached(Entry& entry) {
  const Result<bool> reached = cuda_.reached(entry.what.event.get());
  if (!reached.ok() || reached.value()) {
    tell(entry, reached.ok() ? entry.what.check() : reached.error());
    return true;
  }
  if (Clock::now() < entry.next_check) return false;
  entry.next_check = Clock::now() + kCheckEvery;
  if (const Error error = entry.what.check()) tell(entry, error);
  return false;
}

void EventWatcher::tell(Entry& entry, const Error& error) {
  if (const auto ended = std::exchange(entry.what.ended, nullptr)) ended(error);
}

}  // namespace ringdist::gpu
