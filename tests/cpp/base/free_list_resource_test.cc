#include "base/free_list_resource.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace ringdist {
namespace {

TEST(FreeListResource, GivesTheSameMemoryAgain) {
#ifdef RINGDIST_SANITIZED
  GTEST_SKIP() << "under sanitizers nothing is kept";
#endif
  FreeListResource memory;
  void* const first = memory.allocate(100, 8);
  void* const second = memory.allocate(100, 8);
  EXPECT_NE(first, second);
  memory.deallocate(first, 100, 8);
  EXPECT_EQ(memory.allocate(128, 16), first) << "of the same power of two";
  memory.deallocate(first, 128, 16);
  memory.deallocate(second, 100, 8);
  EXPECT_EQ(memory.allocate(65, 1), second) << "what came back last goes first";
  memory.deallocate(second, 65, 1);
}

TEST(FreeListResource, BlocksDoNotOverlapAndAreAligned) {
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  struct Block {
    std::byte* at;
    size_t bytes;
    size_t alignment;
    std::byte mark;
  };
  FreeListResource memory;
  std::vector<Block> blocks;
  for (int round = 0; round < 5000; ++round) {
    if (blocks.size() < 50 && random() % 3 > 0) {
      const size_t bytes = 1 + random() % (round % 10 == 0 ? 200000 : 1000);
      const size_t alignment = size_t{1} << random() % 8;
      auto* const at = static_cast<std::byte*>(memory.allocate(bytes, alignment));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(at) % alignment, 0u);
      blocks.push_back({at, bytes, alignment, static_cast<std::byte>(random())});
      std::memset(at, static_cast<int>(blocks.back().mark), bytes);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const Block& block = blocks.back();
      for (size_t i = 0; i < block.bytes; ++i) ASSERT_EQ(block.at[i], block.mark);
      memory.deallocate(block.at, block.bytes, block.alignment);
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) memory.deallocate(block.at, block.bytes, block.alignment);
}

}  // namespace
}  // namespace ringdist
