#include "rendezvous/fallback_store.h"

#include <future>

namespace ringdist {

std::shared_ptr<Store> FallbackStore::own() {
  std::lock_guard lock(mutex_);
  return own_;
}

// Returns null if no other connection can be opened.
std::shared_ptr<Store> FallbackStore::open_own() {
  std::lock_guard lock(mutex_);
  if (own_) return own_;
  auto opened = open_();
  if (opened.ok()) own_ = opened.value();
  return own_;
}

// Only queries that may run twice: if the shared connection is blocked, the first one is executed
// late, and its answer is discarded.
template <typename T>
Result<T> FallbackStore::ask(const std::function<Result<T>(Store&)>& question) {
  if (const auto store = own()) return question(*store);
  // Only the task holds the promise, so if the task is dropped, the future reports a broken
  // promise.
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto answer = promise->get_future();
  run_on_pool_([promise = std::move(promise), question, shared = shared_] {
    promise->set_value(question(*shared));
  });
  if (answer.wait_for(held_after_) == std::future_status::timeout) {
    const auto store = open_own();
    return question(store ? *store : *shared_);
  }
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return Error(ErrorKind::kAborted, "the store was not asked: this process ends");
  }
}

// Operations that change the store must not run late or twice. So a query first finds out which
// connection is free.
Result<std::shared_ptr<Store>> FallbackStore::free_one() {
  if (auto store = own()) return store;
  const auto probe = check({"ringdist/probe"});
  if (!probe.ok()) return probe.error();
  auto store = own();
  return store ? store : shared_;
}

Error FallbackStore::set(const std::string& key, std::span<const std::byte> value) {
  const auto store = free_one();
  return store.ok() ? store.value()->set(key, value) : store.error();
}

Error FallbackStore::remove(const std::string& key) {
  const auto store = free_one();
  return store.ok() ? store.value()->remove(key) : store.error();
}

Result<int64_t> FallbackStore::add(const std::string& key, int64_t amount) {
  const auto store = free_one();
  if (!store.ok()) return store.error();
  return store.value()->add(key, amount);
}

Result<std::string> FallbackStore::compare_set(const std::string& key, const std::string& expected,
                                               const std::string& desired) {
  const auto store = free_one();
  if (!store.ok()) return store.error();
  return store.value()->compare_set(key, expected, desired);
}

Result<std::vector<std::vector<std::byte>>> FallbackStore::multi_get(
    const std::vector<std::string>& keys) {
  return ask<std::vector<std::vector<std::byte>>>(
      [keys](Store& store) { return store.multi_get(keys); });
}

Result<bool> FallbackStore::check(const std::vector<std::string>& keys) {
  return ask<bool>([keys](Store& store) { return store.check(keys); });
}

}  // namespace ringdist
