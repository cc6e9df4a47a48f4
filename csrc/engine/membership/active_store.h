// ActiveStore: the store that the present generation of a group uses. It is the store of the first
// generation or, after that was lost, one that a member serves. Any thread.
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

// A store that is opened when it is first needed, and again if that failed. Tasks hold it by
// shared_ptr, because they may outlive the group. Any thread.
class LazyStore {
 public:
  using Open = std::function<Result<std::shared_ptr<Store>>()>;

  explicit LazyStore(Open open) : open_(std::move(open)) {}

  // Returns the store. Blocks for as long as it takes to open it. Errors: those of opening it.
  Result<std::shared_ptr<Store>> get() {
    std::lock_guard lock(mutex_);
    if (store_) return store_;
    auto opened = open_();
    if (opened.ok()) store_ = opened.value();
    return opened;
  }
  // begin() and end() limit queries to one task at a time, so that a store that does not answer
  // holds up one task only. begin() returns false if another task is between the two.
  bool begin() { return !asked_.exchange(true); }
  void end() { asked_ = false; }

 private:
  std::atomic<bool> asked_{false};  // a task is between begin() and end()
  std::mutex mutex_;                // held while it opens
  const Open open_;
  std::shared_ptr<Store> store_ RINGDIST_GUARDED_BY(mutex_);
};

// The vote of a group's store (the witness) in a decision on members: a value under a key of the
// generation, see docs/explanation/membership-proof.md. All store calls run on the task pool. Any
// thread.
class StoreWitness {
 public:
  // The store is opened on the task pool.
  StoreWitness(Context& context, std::shared_ptr<LazyStore> store)
      : context_(context), source_(std::move(store)) {}

  // Marks the store as the witness of that generation, in the background. A store that was
  // restarted, and so has lost its votes, lacks the mark.
  void open(uint64_t nonce);
  // Reads the vote and calls `then` on another thread, with nothing if there is no vote yet. If
  // another query is under way, calls `then` on this thread, with kTimeout. If the store blocks for
  // ever, or the pool has stopped, `then` is never called.
  void read(const GenerationId& generation,
            std::function<void(const Result<std::optional<Accepted>>&)> then);
  // Replaces the vote `before` (none: no vote) by `vote`, atomically. Calls `then` on another
  // thread, with true if `vote` is in the store afterwards.
  void cast(const GenerationId& generation, const std::optional<Accepted>& before,
            const Accepted& vote, std::function<void(bool)> then);
  // Returns true if the store answers within `time`; blocks for that long at most. Returns false at
  // once if another query is under way.
  bool answers(Duration time);

 private:
  // Reads the vote. Error if the store lacks the mark.
  static Result<std::optional<Accepted>> ask(Store& store, const GenerationId& generation);

  Context& context_;
  const std::shared_ptr<LazyStore> source_;
};

// Holds the address of the store in use, and opens it on demand. Any thread.
class ActiveStore {
 public:
  // `options` are those of the first generation. The context must outlive this object.
  ActiveStore(Context& context, const CommunicatorOptions& options);

  // Switches to the store that a member serves at `address`; "" is that of the first generation.
  void move_to(const std::string& address);
  std::string address() const {
    std::lock_guard lock(mutex_);
    return address_;
  }
  // Returns the store in use. It stays valid after move_to().
  std::shared_ptr<LazyStore> get() const {
    std::lock_guard lock(mutex_);
    return store_;
  }
  // Returns the witness of the store in use.
  StoreWitness votes() const { return {context_, get()}; }
  // Returns the address at which this process serves a store; "" if it cannot.
  std::string offer() const;

 private:
  std::shared_ptr<LazyStore> at(const std::string& address) const;

  Context& context_;
  const std::shared_ptr<Store> first_;       // the store of the first generation
  const std::shared_ptr<StoreServer> home_;  // opens and serves other stores; may be null
  mutable std::mutex mutex_;
  std::string address_ RINGDIST_GUARDED_BY(mutex_);
  std::shared_ptr<LazyStore> store_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
