// Copies of every kind, at every offset within a cache line.
#include "kernel/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ringdist {
namespace {

TEST(Copy, TakesAllBytesAndNoOthers) {
  std::mt19937 random(1);
  std::vector<std::byte> from(5000);
  for (std::byte& b : from) b = static_cast<std::byte>(random());
  for (const StoreMode stores : {StoreMode::kCached, StoreMode::kStreaming})
    for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 200, 1000, 4096})
      for (size_t to_at = 0; to_at < 64; to_at += 7)
        for (size_t from_at = 0; from_at < 64; from_at += 13) {
          std::vector<std::byte> expected(5000, std::byte{7});
          std::copy_n(from.begin() + static_cast<ptrdiff_t>(from_at), bytes,
                      expected.begin() + static_cast<ptrdiff_t>(to_at));
          std::vector<std::byte> to(5000, std::byte{7});
          copy(to.data() + to_at, from.data() + from_at, bytes, stores);
          ASSERT_EQ(to, expected) << bytes << " bytes from " << from_at << " to " << to_at;
        }
}

}  // namespace
}  // namespace ringdist
