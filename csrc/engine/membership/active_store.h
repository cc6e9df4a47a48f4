// The store that the present generation of a group uses: that it began with, or one that a member
// serves since that was lost. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/thread_annotations.h"
#include "engine/bootstrap/communicator_options.h"
#include "engine/context/context.h"
#include "membership/paxos/generation_log.h"
#include "rendezvous/store.h"

namespace ringdist {

// A store that is opened when it is first needed, and again where that failed. Any thread; tasks
// hold it, as they may outlive all else.
class LazyStore {
 public:
  using Open = std::function<Result<std::shared_ptr<Store>>()>;

  explicit LazyStore(Open open) : open_(std::move(open)) {}

  // May block for as long as it takes to open it.
  Result<std::shared_ptr<Store>> get() {
    std::lock_guard lock(mutex_);
    if (store_) return store_;
    auto opened = open_();
    if (opened.ok()) store_ = opened.value();
    return opened;
  }
  // Of one task at a time: one that the store lets wait must not be followed by others.
  bool begin() { return !asked_.exchange(true); }
  void end() { asked_ = false; }

 private:
  std::atomic<bool> asked_{false};
  std::mutex mutex_;  // held while it opens
  const Open open_;
  std::shared_ptr<Store> store_ RINGDIST_GUARDED_BY(mutex_);
};

// The vote that a group's store has in a decision of its members (docs/membership.md): a value
// under a key of the generation. Any thread.
class StoreWitness {
 public:
  // The store is opened on the task pool.
  StoreWitness(Context& context, std::shared_ptr<LazyStore> store)
      : context_(context), source_(std::move(store)) {}

  // Marks the store as the one that votes for that generation: one that was started anew, and has
  // lost its votes, lacks the mark. In the background.
  void open(uint64_t nonce);
  // Answers on another thread, or never.
  void read(const GenerationId& generation,
            std::function<void(const Result<std::optional<Accepted>>&)> then);
  void cast(const GenerationId& generation, const std::optional<Accepted>& before,
            const Accepted& vote, std::function<void(bool)> then);
  // Whether it answers within `time`; waits for that.
  bool answers(Duration time);

 private:
  // A read of a store that has the mark.
  static Result<std::optional<Accepted>> ask(Store& store, const GenerationId& generation);

  Context& context_;
  const std::shared_ptr<LazyStore> source_;
};

class ActiveStore {
 public:
  // `options`: of the first generation. The context outlives it.
  ActiveStore(Context& context, const CommunicatorOptions& options);

  // "": that of the first generation.
  void move_to(const std::string& address);
  std::string address() const {
    std::lock_guard lock(mutex_);
    return address_;
  }
  std::shared_ptr<LazyStore> get() const {
    std::lock_guard lock(mutex_);
    return store_;
  }
  StoreWitness votes() const { return {context_, get()}; }
  // The address at which this process serves one; "": it cannot.
  std::string offer() const;

 private:
  std::shared_ptr<LazyStore> at(const std::string& address) const;

  Context& context_;
  const std::shared_ptr<Store> first_;
  const std::shared_ptr<StoreServer> home_;
  mutable std::mutex mutex_;
  std::string address_ RINGDIST_GUARDED_BY(mutex_);
  std::shared_ptr<LazyStore> store_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
