// The vote that a group's store has in a decision of its members (docs/membership.md): a value
// under a key of the generation. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/thread_annotations.h"
#include "consensus/generations.h"
#include "engine/context.h"
#include "rendezvous/store.h"

namespace ringdist {

class StoreVotes {
 public:
  using Open = std::function<Result<std::shared_ptr<Store>>()>;

  // `open` is called on the task pool, when the store is first needed, and again where it fails.
  StoreVotes(Context& context, Open open)
      : context_(context), source_(std::make_shared<Source>(std::move(open))) {}

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
  // Tasks hold it: they may outlive all else.
  class Source {
   public:
    explicit Source(Open open) : open_(std::move(open)) {}
    Result<std::shared_ptr<Store>> get();
    // Of one task at a time: one that the store lets wait must not be followed by others.
    bool begin() { return !asked_.exchange(true); }
    void end() { asked_ = false; }

   private:
    std::atomic<bool> asked_{false};
    std::mutex mutex_;  // held while it opens
    const Open open_;
    std::shared_ptr<Store> store_ RINGDIST_GUARDED_BY(mutex_);
  };
  // A read of a store that has the mark.
  static Result<std::optional<Accepted>> ask(Store& store, const GenerationId& generation);

  Context& context_;
  const std::shared_ptr<Source> source_;
};

}  // namespace ringdist
