// A store in memory, shared by ranks that are threads. Thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "base/thread_annotations.h"
#include "rendezvous/store.h"

namespace ringdist {

class MapStore final : public Store {
 public:
  Error set(const std::string& key, std::span<const std::byte> value) override {
    std::lock_guard lock(mutex_);
    values_[key].assign(value.begin(), value.end());
    return {};
  }
  Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) override {
    std::lock_guard lock(mutex_);
    std::vector<std::vector<std::byte>> out;
    for (const auto& key : keys) {
      auto it = values_.find(key);
      if (it == values_.end()) {  // other stores would wait for the key without end
        ADD_FAILURE() << "asked for " << key << ", which is not there";
        return Error(ErrorKind::kSystem, "no key " + key);
      }
      out.push_back(it->second);
    }
    return out;
  }
  Result<int64_t> add(const std::string& key, int64_t amount) override {
    std::lock_guard lock(mutex_);
    return counters_[key] += amount;
  }
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    std::lock_guard lock(mutex_);
    const auto it = values_.find(key);
    const std::string now =
        it == values_.end()
            ? ""
            : std::string(reinterpret_cast<const char*>(it->second.data()), it->second.size());
    if (now != expected) return now;
    const auto* bytes = reinterpret_cast<const std::byte*>(desired.data());
    values_[key].assign(bytes, bytes + desired.size());
    return desired;
  }
  Result<bool> check(const std::vector<std::string>& keys) override {
    std::lock_guard lock(mutex_);
    for (const auto& key : keys)
      if (!values_.contains(key)) return false;
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::byte>> values_ RINGDIST_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> counters_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
