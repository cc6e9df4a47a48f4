// Functions that PyTorch or its users attach to a group, to hear of each operation that succeeded
// and of the group's failure. The flight recorder of PyTorch 2.15 lives on them; its Hooks.hpp is
// the contract. Any thread.
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

// Functions by id. None is called, copied or destroyed with the lock held: it may need the GIL,
// whose holder may be waiting for the lock.
template <typename... Args>
class HookTable {
 public:
  using Hook = std::function<void(Args...)>;

  // Replaces the one of that id.
  void add(int64_t id, Hook hook) { change(id, std::make_shared<const Hook>(std::move(hook))); }
  void remove(int64_t id) { change(id, nullptr); }
  bool empty() const { return empty_.load(std::memory_order_relaxed); }
  void clear() {
    std::lock_guard one_at_a_time(changing_);
    const auto old = entries();  // destroyed last
    empty_.store(true, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    entries_ = std::make_shared<const Entries>();
  }
  void copy_to(HookTable& other) const {
    for (const auto& [id, hook] : *entries()) other.change(id, hook);
  }

  // What they throw ends here: there may be nobody to catch it.
  void call(Args... args) const {
    const auto held = entries();  // hooks may remove themselves
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

  std::mutex changing_;  // before mutex_
  mutable std::mutex mutex_;
  std::shared_ptr<const Entries> entries_ RINGDIST_GUARDED_BY(mutex_) =
      std::make_shared<const Entries>();
  std::atomic<bool> empty_{true};
};

class Hooks {
 public:
  // The operation's key and its duration. Called on a lane: brief, without the GIL, and nothing of
  // this group may be called.
  HookTable<uint64_t, float> succeeded;
  HookTable<> failed;
  bool empty() const { return succeeded.empty() && failed.empty(); }

  // Calls the functions for failure, once; who comes later waits for them, so that a process does
  // not end before what they write is written, but not for ever. Returns at once in a function of
  // theirs.
  void call_failed();

  // The group is about to end as it should: what fails from now on is not reported. `waits`: for
  // functions that are being called, as call_failed() does.
  void end(bool waits);

 private:
  void await(std::unique_lock<std::mutex>& lock) RINGDIST_REQUIRES(mutex_);

  std::mutex mutex_;
  std::condition_variable returned_;
  std::optional<std::thread::id> caller_ RINGDIST_GUARDED_BY(mutex_);
  bool done_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool ended_ RINGDIST_GUARDED_BY(mutex_) = false;
};

// The success of one call, which is that of all ops it is made of. Any thread.
class Completion {
 public:
  Completion(std::shared_ptr<Hooks> hooks, size_t parts);

  // Unique in the process, never used again.
  uint64_t key() const { return key_; }
  bool wanted() const { return !hooks_->succeeded.empty(); }
  // One part has succeeded; the last one is reported.
  void arrive();
  // From the call to its success, or to now.
  float milliseconds() const;

 private:
  const std::shared_ptr<Hooks> hooks_;
  const uint64_t key_;
  const TimePoint started_ = Clock::now();
  std::atomic<size_t> left_;
  std::atomic<float> milliseconds_{-1};
};

using CompletionPtr = std::shared_ptr<Completion>;

}  // namespace ringdist
