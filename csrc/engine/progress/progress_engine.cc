#include "engine/progress/progress_engine.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <functional>
#include <future>

#include "base/check.h"
#include "base/error.h"
#include "engine/progress/dispatcher.h"
#include "engine/progress/progress_lock.h"
#include "transport/self_transport.h"

namespace ringdist {
namespace {

constexpr auto kActiveSleep = std::chrono::milliseconds(50);  // interval for checks of deadlines
constexpr auto kDrainSleep = std::chrono::milliseconds(10);
constexpr auto kIdleSleep = std::chrono::hours(1);
constexpr auto kEvictTime = std::chrono::seconds(1);
constexpr Duration kCallerGone = std::chrono::milliseconds(1);
constexpr Duration kMaxCallerGone = std::chrono::milliseconds(8);
constexpr auto kFirstLook = std::chrono::microseconds(100);
constexpr auto kLastLook = std::chrono::milliseconds(10);
constexpr auto kAnswerTime = std::chrono::seconds(10);

// Calls `body` at the end of the scope.
template <typename Body>
class Cleanup {
 public:
  explicit Cleanup(Body body) : body_(std::move(body)) {}
  ~Cleanup() { body_(); }
  Cleanup(const Cleanup&) = delete;

 private:
  Body body_;
};

}  // namespace

Result<std::unique_ptr<ProgressEngine>> ProgressEngine::start(Statistics& statistics,
                                                              int64_t memory_limit,
                                                              DispatcherDelegate& delegate) {
  auto event = EventFd::create();
  if (!event.ok()) return event.error();
  auto thread_epoll = Epoll::create();
  if (!thread_epoll.ok()) return thread_epoll.error();
  auto caller_epoll = Epoll::create();
  if (!caller_epoll.ok()) return caller_epoll.error();
  std::unique_ptr<ProgressEngine> progress(new ProgressEngine(
      std::move(event.value()), std::move(thread_epoll.value()), std::move(caller_epoll.value())));
  for (Epoll* epoll : {&progress->thread_epoll_, &progress->caller_epoll_})
    if (Error error = epoll->add(progress->event_.get(), EPOLLIN, 0)) return error;
  progress->dispatcher_ =
      std::make_unique<Dispatcher>(statistics, memory_limit, progress->lock_, delegate);
  try {
    progress->thread_ = std::thread(&ProgressEngine::run, progress.get());
  } catch (...) {
    return current_exception_error();
  }
  pthread_setname_np(progress->thread_.native_handle(), "ringdist-lane");
  return progress;
}

ProgressEngine::ProgressEngine(EventFd event, Epoll thread_epoll, Epoll caller_epoll)
    : event_(std::move(event)),
      thread_epoll_(std::move(thread_epoll)),
      caller_epoll_(std::move(caller_epoll)) {}

ProgressEngine::~ProgressEngine() {
  stop();
  if (mark_.forked() && thread_.joinable()) thread_.detach();  // only the parent has the thread
}

void ProgressEngine::add_transport(std::unique_ptr<Transport> transport) {
  const int fd = transport->event_fd();
  for (Epoll* epoll : {&thread_epoll_, &caller_epoll_})
    if (fd >= 0) check(!epoll->add(fd, EPOLLIN, 1), "a transport's event descriptor is unusable");
  transports_.push_back(std::move(transport));
}

Transport* ProgressEngine::find_transport(std::string_view name) {
  for (const auto& transport : transports_)
    if (transport->name() == name) return transport.get();
  return nullptr;
}

void ProgressEngine::drain_peer(ContextId peer, std::function<void()> task) {
  draining_.emplace_back(peer, std::move(task));
  drain_peers();
}

bool ProgressEngine::drain_peers() {
  const auto drained = [this](const auto& entry) {
    bool all = true;
    for (const auto& transport : transports_) all &= transport->drained(entry.first);
    return all;
  };
  const auto done = std::stable_partition(draining_.begin(), draining_.end(), std::not_fn(drained));
  std::vector over(std::make_move_iterator(done), std::make_move_iterator(draining_.end()));
  draining_.erase(done, draining_.end());
  for (auto& [peer, task] : over) {
    task();
    for (const auto& transport : transports_) transport->drop_peer(peer);
  }
  return !over.empty();
}

bool ProgressEngine::post(std::function<void()> task, bool wake) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return false;
    tasks_.push_back(std::move(task));
    has_tasks_.store(true);
  }
  if (lock_.held_by_this_thread())
    return true;  // the holder looks for tasks before it sleeps or releases the lock
  if (wake)
    wake_thread();
  else if (caller_sleeps_.load())
    event_.signal();
  return true;
}

// The lock of a lane that has stopped is never free.
bool ProgressEngine::begin_progress() {
  if (!lock_.take()) return false;
  dispatcher_->set_now(Clock::now());
  return true;
}

void ProgressEngine::end_progress() {
  // The holder need not call wait() if its op ends in here.
  do {
    (void)fail_all_if_thrown(*dispatcher_, [this] { return dispatcher_->run_work(); });
  } while (run_tasks());
  last_driven_.store(dispatcher_->progress_state().now.time_since_epoch().count(),
                     std::memory_order_relaxed);
  if (lock_.release(nullptr)) return;
  if (has_tasks()) wake_thread();  // see release_lock()
}

bool ProgressEngine::call(std::function<void()> task, TimePoint deadline) {
  auto promise = std::make_shared<std::promise<void>>();
  std::future<void> ran = promise->get_future();
  post([promise = std::move(promise), task = std::move(task)] {
    task();
    promise->set_value();
  });
  if (ran.wait_until(deadline) != std::future_status::ready) return false;
  try {
    ran.get();
    return true;
  } catch (const std::future_error&) {
    return false;  // the lane has stopped and dropped the task
  }
}

bool ProgressEngine::call_until(std::function<bool()> condition, TimePoint deadline) {
  auto met = std::make_shared<bool>(false);
  const auto ask = [met, condition = std::move(condition)] { *met = condition(); };
  for (Duration pause = kFirstLook; Clock::now() < deadline;
       pause = std::min<Duration>(2 * pause, kLastLook)) {
    if (!call(ask, std::min(deadline, Clock::now() + kAnswerTime))) return false;
    if (*met) return true;
    std::this_thread::sleep_for(pause);
  }
  return false;
}

void ProgressEngine::set_affinity(const CpuSet& cpus) {
  std::lock_guard lock(mutex_);  // stop() joins the thread later
  if (!stopping_ && !mark_.forked()) (void)cpus.narrow(thread_.native_handle());
}

bool ProgressEngine::stopped() {
  std::lock_guard lock(mutex_);
  return stopping_;
}

bool ProgressEngine::run_tasks() {
  if (!has_tasks()) return false;
  std::deque<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    has_tasks_.store_relaxed(false);
  }
  for (auto& task : tasks)
    (void)fail_all_if_thrown(*dispatcher_, [&] {
      task();
      return true;
    });
  return !tasks.empty();
}

// Runs one iteration with the lock held. Returns true if anything happened.
bool ProgressEngine::poll() {
  return fail_all_if_thrown(*dispatcher_, [this] {
    dispatcher_->set_now(Clock::now());
    bool any = run_tasks();
    for (size_t i = 0; i < transports_.size(); ++i) any |= transports_[i]->progress();
    if (!draining_.empty()) any |= drain_peers();
    any |= dispatcher_->run_work();
    dispatcher_->tick();
    return any;
  });
}

bool ProgressEngine::pause() {
  const TimePoint now = dispatcher_->progress_state().now;
  const Backoff::Next next = backoff_.next(now, dispatcher_->wait());
  if (next == Backoff::Next::kYield) {
    const TimePoint before = Clock::now();
    sched_yield();
    const TimePoint after = Clock::now();
    backoff_.yielded(after - before, after);
  }
  return next == Backoff::Next::kSleep;
}

bool ProgressEngine::wait(const Op& op, TimePoint deadline) {
  // If the lock is free, there is no need to enlist.
  if (op.finished() || (try_to_drive(op, deadline, nullptr) && op.finished())) return true;
  ProgressLock::Waiter self(op);
  lock_.enlist(self);
  const Cleanup leave([&] {
    if (lock_.delist(self) && lock_.take()) release_lock(&self);
  });
  while (!op.finished() && Clock::now() < deadline) {
    lock_.withdraw_offer(self);
    if (!try_to_drive(op, deadline, &self)) lock_.await(self, deadline);
  }
  return op.finished();
}

bool ProgressEngine::try_to_drive(const Op& op, TimePoint deadline,
                                  const ProgressLock::Waiter* self) {
  if (!lock_.take()) return false;
  const Cleanup give_back([&] { release_lock(self); });
  drive(op, deadline);
  return true;
}

void ProgressEngine::drive(const Op& op, TimePoint deadline) {
  const InProgressScope scope;
  backoff_.begin(Clock::now());
  while (!op.finished()) {
    if (poll()) {
      backoff_.begin(dispatcher_->progress_state().now);
      continue;
    }
    if (op.finished() || dispatcher_->progress_state().now >= deadline)
      return;  // a tick may have ended the op, and does not count as an event
    if (pause()) block_as_caller(deadline);
  }
}

void ProgressEngine::release_lock(const ProgressLock::Waiter* self) {
  const bool active = !dispatcher_->idle();
  last_driven_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  if (lock_.release(self)) return;
  // A thread that posted while the lock was held woke the lane's thread in vain.
  if (active || has_tasks()) return wake_thread();
  // The events that the thread armed for were consumed here, so it must arm again.
  if (thread_sleeps_.load()) event_.signal();
}

// Sets the flag first and looks for sleepers second; block_as_thread() does the reverse.
void ProgressEngine::wake_thread() {
  {
    std::lock_guard lock(mutex_);
    thread_woken_ = true;
    thread_wake_.notify_one();
  }
  if (thread_sleeps_.load() || caller_sleeps_.load()) event_.signal();
}

bool ProgressEngine::arm() {
  event_.drain();
  for (const auto& transport : transports_)
    if (!transport->arm()) return false;
  return !has_tasks_.load() && !dispatcher_->has_work();
}

Duration ProgressEngine::sleep_time(TimePoint deadline) const {
  const TimePoint now = Clock::now();
  Duration sleep = dispatcher_->idle() ? Duration(kIdleSleep) : Duration(kActiveSleep);
  if (!draining_.empty()) sleep = std::min<Duration>(sleep, kDrainSleep);
  sleep = std::min(sleep, deadline - now);
  for (const auto& transport : transports_)
    if (auto due = transport->due()) sleep = std::min(sleep, *due - now);
  return std::max(sleep, Duration(0));
}

// The flag is set before the search for work; post() does the reverse, so one sees the other.
void ProgressEngine::block_as_caller(TimePoint deadline) {
  caller_sleeps_.store(true);
  if (arm())
    if (const Duration sleep = sleep_time(deadline); sleep > Duration(0))
      (void)caller_epoll_.wait(sleep);
  caller_sleeps_.store(false);
}

void ProgressEngine::block_as_thread() {
  thread_sleeps_.store(true);
  const bool armed = arm() && !thread_is_wanted();
  const Duration sleep = sleep_time(TimePoint::max());
  if (!lock_.release(nullptr) && armed && sleep > Duration(0)) (void)thread_epoll_.wait(sleep);
  thread_sleeps_.store(false);
}

// The lane's thread sleeps in epoll, without the lock, until an event. While callers make progress
// it only looks once per millisecond, so a burst of blocking ops wakes it once. While one caller
// continues it looks less often; many ranks on a host would use much of a core.
void ProgressEngine::run() {
  const InProgressScope scope;
  Duration pause = kCallerGone;
  Clock::rep seen = 0;
  for (;;) {
    if (may_take_over() && lock_.take()) {
      drive_in_background();
      pause = kCallerGone;
      continue;
    }
    const Clock::rep driven = last_driven_.load(std::memory_order_relaxed);
    pause = driven == seen ? std::min<Duration>(2 * pause, kMaxCallerGone) : kCallerGone;
    seen = driven;
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    if (!thread_woken_)
      thread_wake_.wait_for(lock, pause);
    else if (lock_.anybody_waits())  // perhaps for an op that has ended
      thread_wake_.wait_for(lock, kCallerGone);
  }
}

bool ProgressEngine::thread_is_wanted() {
  std::lock_guard lock(mutex_);
  return thread_woken_ || stopping_;
}

bool ProgressEngine::may_take_over() {
  std::lock_guard lock(mutex_);
  if (stopping_ || lock_.anybody_waits()) return false;
  if (std::exchange(thread_woken_, false)) return true;
  const Duration since_epoch(last_driven_.load(std::memory_order_relaxed));
  return Clock::now() - TimePoint(since_epoch) > kCallerGone;
}

// Needs the lock and releases it.
void ProgressEngine::drive_in_background() {
  backoff_.begin(Clock::now());
  for (;;) {
    // If all their ops have ended no waiter takes the lock, and other ops must go on.
    if (lock_.anybody_waits() && (lock_.release(nullptr) || !lock_.take())) return;
    if (poll()) {
      backoff_.begin(dispatcher_->progress_state().now);
      continue;
    }
    if (pause()) return block_as_thread();
  }
}

void ProgressEngine::flush(TimePoint deadline) {
  const auto ask = [this] {
    for (const auto& transport : transports_) transport->begin_flush();
  };
  if (!call(ask, deadline)) return;
  const auto flushed = [](const auto& transport) { return transport->flushed(); };
  (void)call_until([this, flushed] { return std::ranges::all_of(transports_, flushed); }, deadline);
}

void ProgressEngine::stop() {
  if (mark_.forked()) return;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  wake_thread();
  if (thread_.joinable()) thread_.join();
  // A caller that makes progress must not lose its transports. One that never leaves keeps them.
  const TimePoint deadline = Clock::now() + kEvictTime;
  while (!lock_.take()) {
    if (Clock::now() > deadline) return;
    event_.signal();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (const auto& transport : transports_) transport->close();
  (void)fail_all_if_thrown(
      *dispatcher_, [this] { return dispatcher_->run_work(); });  // frees executions that ended
  std::unique_lock lock(mutex_);
  const auto dropped = std::exchange(tasks_, {});
  lock.unlock();  // destroying tasks may wake waiters
}

}  // namespace ringdist
