// A store over a connection that others use, too, and may hold up: a TCPStore's client is locked
// while a caller of its own waits for a key. Then another connection is opened. Not at once,
// because each costs all ranks time: the server looks its name up.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "rendezvous/store.h"

namespace ringdist {

class FallbackStore final : public Store {
 public:
  using Open = std::function<Result<std::shared_ptr<Store>>()>;
  // Runs a task on another thread, perhaps for long; may drop it.
  using RunElsewhere = std::function<void(std::function<void()>)>;

  // `held_after`: when an answer of `shared` is late enough to call `open`, which is done once.
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
  template <typename T>
  Result<T> ask(const std::function<Result<T>(Store&)>& question);
  Result<std::shared_ptr<Store>> free_one();
  std::shared_ptr<Store> own();
  std::shared_ptr<Store> open_own();

  const std::shared_ptr<Store> shared_;
  const Open open_;
  const RunElsewhere run_on_pool_;
  const Duration held_after_;
  std::mutex mutex_;  // held while it opens
  std::shared_ptr<Store> own_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
