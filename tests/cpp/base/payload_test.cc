#include "base/payload.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ringdist {
namespace {

TEST(Payload, OfMemoryThatStaysAlwaysHolds) {
  const std::vector<std::byte> bytes(10);
  const Payload payload = bytes;
  EXPECT_EQ(payload.bytes().data(), bytes.data());
  EXPECT_EQ(payload.size(), 10u);
  EXPECT_TRUE(payload.still_valid());
  EXPECT_TRUE(Payload().still_valid());
  EXPECT_EQ(Payload().size(), 0u);
}

TEST(Payload, HoldsUntilItIsTakenBack) {
  const std::vector<std::byte> bytes(10);
  std::atomic<uint32_t> word = 5;
  const Payload payload(bytes, word, 8);
  EXPECT_TRUE(payload.still_valid());
  word.fetch_or(8);
  EXPECT_FALSE(payload.still_valid());
}

// A reader that sees anything but the sent bytes must find the payload invalid.
TEST(Payload, WhatChangedDidNotHold) {
  constexpr int kRounds = 5000;
  std::atomic<uint32_t> word = 0;
  std::vector<std::atomic<int>> memory(16);
  std::atomic<int> round = 0;
  std::thread sender([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round != i) std::this_thread::yield();
      word.fetch_or(1, std::memory_order_seq_cst);
      for (auto& one : memory) one.store(i, std::memory_order_release);
      round = -i;
    }
  });
  int torn = 0;
  int wrong = 0;
  for (int i = 1; i <= kRounds; ++i) {
    word = 0;
    for (auto& one : memory) one = 0;
    const Payload payload({reinterpret_cast<const std::byte*>(memory.data()), 64}, word, 1);
    round = i;
    int sum = 0;
    for (auto& one : memory) sum += one.load(std::memory_order_relaxed);
    const bool held = payload.still_valid();
    torn += sum != 0;
    wrong += sum != 0 && held;
    while (round != -i) std::this_thread::yield();
  }
  sender.join();
  EXPECT_EQ(wrong, 0) << torn << " of " << kRounds << " rounds found something else";
}

}  // namespace
}  // namespace ringdist
