// A store that forwards to another store and runs a hook of the test before each operation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store.h"

namespace ringdist {

class HookedStore final : public Store {
 public:
  // `before` gets the operation's name and runs on the thread of the caller.
  HookedStore(std::shared_ptr<Store> store, std::function<void(std::string_view)> before)
      : store_(std::move(store)), before_(std::move(before)) {}

  Error set(const std::string& key, std::span<const std::byte> value) override {
    before_("set");
    return store_->set(key, value);
  }
  Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) override {
    before_("multi_get");
    return store_->multi_get(keys);
  }
  Result<int64_t> add(const std::string& key, int64_t amount) override {
    before_("add");
    return store_->add(key, amount);
  }
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    before_("compare_set");
    return store_->compare_set(key, expected, desired);
  }
  Result<bool> check(const std::vector<std::string>& keys) override {
    before_("check");
    return store_->check(keys);
  }

 private:
  const std::shared_ptr<Store> store_;
  const std::function<void(std::string_view)> before_;
};

}  // namespace ringdist
