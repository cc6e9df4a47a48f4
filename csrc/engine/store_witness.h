// The vote that a group's store has in a decision of its members (docs/membership.md): a value
// under a key of the generation. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "engine/context.h"
#include "engine/lazy_store.h"
#include "membership/paxos/generation_log.h"
#include "rendezvous/store.h"

namespace ringdist {

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

}  // namespace ringdist
