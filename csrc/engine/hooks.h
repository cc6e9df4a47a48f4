// Hooks: functions that PyTorch or its users attach to a group. They are called for each op that
// succeeds and when the group fails. The flight recorder of PyTorch 2.15 depends on them; the
// contract is PyTorch's Hooks.hpp. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread_annotations.h"

namespace ringdist {

// Table of functions by id. None is called, copied or destroyed while the lock is held: that may
// need the GIL, and the thread that holds the GIL may wait for the lock. Any thread.
template <typename... Args>
class HookTable {
 public:
  using Hook = std::function<void(Args...)>;

  // Adds a function. Replaces the one with the same id. A call under way does not run it.
  void add(int64_t id, Hook hook) { change(id, std::make_shared<const Hook>(std::move(hook))); }
  // Removes a function, if it is there. A call under way may still be running it.
  void remove(int64_t id) { change(id, nullptr); }
  // Returns true if there are no functions. Cheap enough for the path of every op: reads an atomic
  // without a lock. A change on another thread may be seen a little later.
  bool empty() const { return empty_.load(std::memory_order_relaxed); }
  // Removes all functions. Calls under way may still be running them.
  void clear() {
    std::lock_guard one_at_a_time(changing_);
    // The functions are destroyed after mutex_ has been released, though with changing_ held.
    const auto old = entries();
    empty_.store(true, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    entries_ = std::make_shared<const Entries>();
  }
  // Adds all functions of this table to `other`, where they replace those with the same ids.
  void copy_to(HookTable& other) const {
    for (const auto& [id, hook] : *entries()) other.change(id, hook);
  }

  // Calls all functions on this thread, in the order in which they were added. Exceptions are
  // logged and dropped, because there may be no caller that could catch them.
  void call(Args... args) const {
    const auto held = entries();  // keeps the functions alive, as they may remove themselves
    for (const auto& [id, hook] : *held) {
      try {
        (*hook)(args...);
      } catch (const std::exception& error) {
        log(LogLevel::kWarn, std::string("a hook of a group raised ") + error.what());
      } catch (...) {
        log(LogLevel::kWarn, "a hook of a group raised an exception");
      }
    }
  }

 private:
  using Entries = std::vector<std::pair<int64_t, std::shared_ptr<const Hook>>>;

  std::shared_ptr<const Entries> entries() const {
    std::lock_guard lock(mutex_);
    return entries_;
  }

  // Replaces or removes (null) the function of an id. Copies the table, so that calls under way
  // keep theirs.
  void change(int64_t id, std::shared_ptr<const Hook> hook) {
    auto next = std::make_shared<Entries>();
    std::shared_ptr<const Entries> old;
    std::lock_guard one_at_a_time(changing_);
    old = entries();
    for (const auto& entry : *old)
      if (entry.first != id) next->push_back(entry);
    if (hook) next->emplace_back(id, std::move(hook));
    empty_.store(next->empty(), std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    entries_ = std::move(next);
  }

  std::mutex changing_;  // serializes changes; locked before mutex_
  mutable std::mutex mutex_;
  std::shared_ptr<const Entries> entries_ RINGDIST_GUARDED_BY(mutex_) =
      std::make_shared<const Entries>();
  std::atomic<bool> empty_{true};
};

// All hooks of a group. Duplicates have their own. Any thread.
class Hooks {
 public:
  // Called for each op that succeeds, with the op's key and its duration in ms. Runs on the
  // progress thread: it has to be brief, must not take the GIL and must not call functions of this
  // group.
  HookTable<uint64_t, float> succeeded;
  // Called once when the group fails, on any thread. It may take the GIL.
  HookTable<> failed;
  bool empty() const { return succeeded.empty() && failed.empty(); }

  // Calls the failure hooks, once per group. Further callers wait until the hooks have returned,
  // but at most 40 s, so that the process does not end before they have written their output.
  // Returns at once if it is called by a hook, or if end() came first.
  void call_failed();

  // Disables the failure hooks: the group is about to end in good order, and later failures are not
  // reported. With `waits`, waits for hooks that are running, as call_failed() does.
  void end(bool waits);

 private:
  // Waits until the failure hooks have returned, unless this thread runs them.
  void await(std::unique_lock<std::mutex>& lock) RINGDIST_REQUIRES(mutex_);

  std::mutex mutex_;
  std::condition_variable returned_;
  // The thread that runs the failure hooks.
  std::optional<std::thread::id> caller_ RINGDIST_GUARDED_BY(mutex_);
  bool done_ RINGDIST_GUARDED_BY(mutex_) = false;   // they have returned
  bool ended_ RINGDIST_GUARDED_BY(mutex_) = false;  // end() was called
};

// Measures one call, which succeeds when all ops that it consists of have. Any thread.
class Completion {
 public:
  // `parts` is the number of ops, at least 1. The time of the call is that of the construction.
  Completion(std::shared_ptr<Hooks> hooks, size_t parts);

  // Returns the key of the call. It is unique in the process and never reused.
  uint64_t key() const { return key_; }
  // Returns true if somebody has attached hooks for success.
  bool wanted() const { return !hooks_->succeeded.empty(); }
  // Reports that one part has succeeded. The last part calls the hooks, on the calling thread. If a
  // part fails, it must not be called for it; then the hooks are never called.
  void arrive();
  // Returns the ms from the call to its success, or until the present if it has not succeeded.
  float milliseconds() const;

 private:
  const std::shared_ptr<Hooks> hooks_;
  const uint64_t key_;
  const TimePoint started_ = Clock::now();
  std::atomic<size_t> left_;             // parts that have not succeeded
  std::atomic<float> milliseconds_{-1};  // negative until the call has succeeded
};

using CompletionPtr = std::shared_ptr<Completion>;

}  // namespace ringdist
