// Shared memory of ranks on one host, and the conditions that prevent it.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/device_group.h"

namespace ringdist {
namespace {

using All = std::vector<std::vector<std::byte>>;

// Exchange of bytes between the ranks of a test, which are threads.
class Table {
 public:
  explicit Table(int size) : said_(static_cast<size_t>(size)), met_(size) {}

  MappedMemory::Exchange of(int rank) {
    return [this, rank](ConstBytes mine) -> Result<All> {
      said_[static_cast<size_t>(rank)].assign(mine.begin(), mine.end());
      met_.arrive_and_wait();
      if (rank == 0 && alters) alters(said_);
      met_.arrive_and_wait();
      All out = said_;
      met_.arrive_and_wait();
      return out;
    };
  }
  std::function<void(All&)> alters;

 private:
  All said_;
  std::barrier<> met_;
};

std::vector<std::shared_ptr<GroupSharedMemory>> make(Table& table, int size, size_t bytes) {
  std::vector<std::shared_ptr<GroupSharedMemory>> out(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      auto made = MappedMemory::make(rank, bytes, table.of(rank));
      ASSERT_TRUE(made.ok()) << made.error().what();
      out[static_cast<size_t>(rank)] = made.value();
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

TEST(MappedMemory, IsOneForAllRanks) {
  constexpr int kSize = 3;
  Table table(kSize);
  const auto memory = make(table, kSize, 10'000);
  for (int owner = 0; owner < kSize; ++owner) {
    ASSERT_NE(memory[static_cast<size_t>(owner)], nullptr);
    const Bytes own = memory[static_cast<size_t>(owner)]->of_rank(owner);
    EXPECT_GE(own.size(), 10'000U);
    EXPECT_EQ(own[9'999], std::byte{0});
    own[9'999] = static_cast<std::byte>(owner + 1);
  }
  for (const auto& one : memory)
    for (int owner = 0; owner < kSize; ++owner)
      EXPECT_EQ(one->of_rank(owner)[9'999], static_cast<std::byte>(owner + 1));
}

// The published record begins with the host, a number, the process and the descriptor. An error in
// any of them must prevent sharing.
TEST(MappedMemory, IsNotWhereOneRankCannotMapIt) {
  constexpr size_t kHost = 0, kNumber = 8, kProcess = 16, kDescriptor = 20;
  for (const size_t wrong : {kHost, kNumber, kProcess, kDescriptor}) {
    SCOPED_TRACE("byte " + std::to_string(wrong));
    Table table(2);
    bool told = false;
    table.alters = [&](All& said) {
      if (std::exchange(told, true)) return;
      if (wrong >= kProcess) std::memset(said[1].data() + wrong, 0, 4);
      said[1][wrong] ^= std::byte{0x01};
    };
    for (const auto& one : make(table, 2, 100)) EXPECT_EQ(one, nullptr);
  }
}

TEST(MappedMemory, EndsWithTheExchange) {
  const auto fails = [](ConstBytes) -> Result<All> { return Error(ErrorKind::kTimeout, "late"); };
  EXPECT_EQ(MappedMemory::make(0, 100, fails).error().kind(), ErrorKind::kTimeout);
}

}  // namespace
}  // namespace ringdist
