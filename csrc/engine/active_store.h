// The store that the present generation of a group uses: that it began with, or one that a member
// serves since that was lost. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/thread_annotations.h"
#include "engine/communicator_options.h"
#include "engine/context.h"
#include "engine/lazy_store.h"
#include "engine/store_witness.h"

namespace ringdist {

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
