// Store over a shared connection, with a connection of its own as fallback. Other users can block
// the shared one: the client of a TCPStore is locked while one of its callers waits for a key. Then
// this class opens another connection. It does not do so from the start, because each connection
// costs all ranks time: the server looks its name up. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "rendezvous/store.h"

namespace ringdist {

// Uses the shared connection until an answer is late, and its own connection from then on. If no
// other connection can be opened, waits for the shared one. Besides errors of the stores, fails
// with kAborted if RunElsewhere drops its task.
class FallbackStore final : public Store {
 public:
  using Open = std::function<Result<std::shared_ptr<Store>>()>;
  // Runs a task on another thread. The task may block for long. It may also be dropped, if the
  // process ends.
  using RunElsewhere = std::function<void(std::function<void()>)>;

  // If an answer of `shared` takes longer than `held_after`, `open` is called. One successful call
  // is enough.
  FallbackStore(std::shared_ptr<Store> shared, Open open, RunElsewhere run_on_pool,
                Duration held_after = std::chrono::seconds(2))
      : shared_(std::move(shared)),
        open_(std::move(open)),
        run_on_pool_(std::move(run_on_pool)),
        held_after_(held_after) {}

  Error set(const std::string& key, std::span<const std::byte> value) override;
  Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override;
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override;
  Error remove(const std::string& key) override;
  Result<bool> check(const std::vector<std::string>& keys) override;

 private:
  // Runs a query on the shared connection by run_on_pool_, and on the own connection if the answer
  // is late.
  template <typename T>
  Result<T> ask(const std::function<Result<T>(Store&)>& question);
  // Returns a store with a connection that is not blocked.
  Result<std::shared_ptr<Store>> free_one();
  // Returns the store with the own connection, or null before it is opened.
  std::shared_ptr<Store> own();
  // Opens the own connection if there is none yet, and returns it.
  std::shared_ptr<Store> open_own();

  const std::shared_ptr<Store> shared_;
  const Open open_;
  const RunElsewhere run_on_pool_;
  const Duration held_after_;
  std::mutex mutex_;  // also held while the connection opens
  std::shared_ptr<Store> own_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
