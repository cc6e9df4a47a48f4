// The key-value store through which ranks find each other: c10d's in production, a map in tests.
// Any thread. No call waits for another rank: whoever needs a key asks check() now and then.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace ringdist
