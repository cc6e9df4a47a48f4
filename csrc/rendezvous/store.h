// The key-value store through which ranks find each other: c10d's in production, a map in tests.
// Any thread. No call waits for another rank: whoever needs a key asks check() now and then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ringdist {

class Store {
 public:
  virtual ~Store() = default;

  virtual Error set(const std::string& key, std::span<const std::byte> value) = 0;
  // Only for keys that exist.
  virtual Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) = 0;
  virtual Result<int64_t> add(const std::string& key, int64_t amount) = 0;
  // What is there afterwards: `desired` if it was `expected`, "" being that there was nothing.
  virtual Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                          const std::string& desired) = 0;
  // A store that cannot forget a key keeps it.
  virtual Error remove(const std::string& /*key*/) { return {}; }
  // Whether all of the keys exist.
  virtual Result<bool> check(const std::vector<std::string>& keys) = 0;

  // A key's value, if it is there: a get would wait for it.
  Result<std::optional<std::vector<std::byte>>> find(const std::string& key) {
    const auto there = check({key});
    if (!there.ok()) return there.error();
    if (!there.value()) return std::optional<std::vector<std::byte>>();
    auto values = multi_get({key});
    if (!values.ok()) return values.error();
    return std::optional(std::move(values.value().front()));
  }
};

// A part of a store: all keys begin alike.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  Error set(const std::string& key, std::span<const std::byte> value) override {
    return store_->set(prefix_ + key, value);
  }
  Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) override {
    return store_->multi_get(prefixed(keys));
  }
  Result<int64_t> add(const std::string& key, int64_t amount) override {
    return store_->add(prefix_ + key, amount);
  }
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    return store_->compare_set(prefix_ + key, expected, desired);
  }
  Error remove(const std::string& key) override { return store_->remove(prefix_ + key); }
  Result<bool> check(const std::vector<std::string>& keys) override {
    return store_->check(prefixed(keys));
  }

 private:
  std::vector<std::string> prefixed(std::vector<std::string> keys) const {
    for (std::string& key : keys) key.insert(0, prefix_);
    return keys;
  }

  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

// Where the stores of groups can be: a group that lost the one that it began with goes on with
// another, which one of its processes serves. Any thread.
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  // Serves one at this process' numeric address until it ends: "ip:port", always the same. "": it
  // cannot.
  virtual std::string offer(const std::string& ip) = 0;
  // That which is offered there. Waits until it answers, for 30 s at most.
  virtual Result<std::shared_ptr<Store>> open(const std::string& address) = 0;
};

}  // namespace ringdist
