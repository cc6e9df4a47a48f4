// A part of a store: all keys begin alike.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/store.h"

namespace ringdist {

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

}  // namespace ringdist
