// Interfaces of the key-value store through which ranks find each other. It is c10d's or a
// RemoteStore in production, and a map in tests. Any thread.
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

// Key-value store. No call waits for another rank; code that needs a key polls check().
class Store {
 public:
  virtual ~Store() = default;

  // Sets a key and replaces its former value.
  virtual Error set(const std::string& key, std::span<const std::byte> value) = 0;
  // Returns the values of keys that exist. A missing key may block the call.
  virtual Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) = 0;
  // Adds to an integer key, which starts at 0, and returns the sum.
  virtual Result<int64_t> add(const std::string& key, int64_t amount) = 0;
  // Sets the key to `desired` if its value was `expected`; "" stands for a missing key. Returns the
  // value afterwards. If the key is missing and `expected` is not "", returns `expected`, as c10d's
  // stores do. So only a result equal to `desired` shows that the key has that value.
  virtual Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                          const std::string& desired) = 0;
  // Removes a key. A store that cannot remove keys keeps it.
  virtual Error remove(const std::string& /*key*/) { return {}; }
  // Returns true if all of the keys exist.
  virtual Result<bool> check(const std::vector<std::string>& keys) = 0;

  // Returns the value of a key, or nothing if it is missing. A plain get would wait for it.
  Result<std::optional<std::vector<std::byte>>> find(const std::string& key) {
    const auto there = check({key});
    if (!there.ok()) return there.error();
    if (!there.value()) return std::optional<std::vector<std::byte>>();
    auto values = multi_get({key});
    if (!values.ok()) return values.error().blame(std::vector<int>{});
    return std::optional(std::move(values.value().front()));
  }
};

// View of a store that prepends a prefix to all keys.
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

// Servers for stores of groups. If a group has lost its store, it continues with one that a member
// process serves. Any thread.
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  // Serves a store at this numeric address until the process ends. Returns "ip:port", the same on
  // each call, or "" if it cannot serve.
  virtual std::string offer(const std::string& ip) = 0;
  // Connects to the store at that address, encrypted if the process has a key. Waits for its
  // answer, at most 30 s.
  virtual Result<std::shared_ptr<Store>> open(const std::string& address) = 0;
};

}  // namespace ringdist
