// Two ends in two threads that never sleep. Only the counters of their rings order the accesses to
// slots and chunks. Under ThreadSanitizer both use one mapping (tests/sanitizers/one_mapping.cc),
// and it must report nothing. In builds with a weaker memory order (tests/mutations) it must
// report a race.
#include <thread>

#include "transport/shm/segment_layout.h"
#include "transport/shm_fixture.h"

namespace ringdist::test {
namespace {

constexpr int kMessages = 30 * static_cast<int>(shm::kSlots);

// Returns sizes that fit into slots, small chunks and large chunks.
size_t size_of(int message) {
  constexpr size_t kSizes[] = {8, 100, 8, 3000, 200, 0, 8, 20000};
  return kSizes[static_cast<size_t>(message) % std::size(kSizes)];
}

void exchange(End& self, End& other, int salt) {
  const TimePoint deadline = Clock::now() + kDeadline;
  std::vector<std::vector<std::byte>> payloads;
  for (int i = 0; i < kMessages; ++i) payloads.push_back(numbered(size_of(i), i + salt));
  int begun = 0;
  while ((self.sent < kMessages || self.got.size() < kMessages) && Clock::now() < deadline) {
    // A few at a time, so that the ring is sometimes empty and sometimes full.
    for (int i = 0; i < 50 && begun < kMessages && begun < self.sent + 200; ++i)
      self.send(other, payloads[static_cast<size_t>(begun++)]);
    if (!self.transport->progress()) std::this_thread::yield();
  }
  EXPECT_EQ(self.sent, kMessages);
}

TEST(ShmThreads, ExchangeWithoutSleep) {
  End a;
  End b;
  a.knows(b);
  b.knows(a);
  std::thread other([&] { exchange(b, a, 100); });
  exchange(a, b, 0);
  other.join();
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(b.got.at(static_cast<size_t>(i)), numbered(size_of(i), i)) << i;
    ASSERT_EQ(a.got.at(static_cast<size_t>(i)), numbered(size_of(i), i + 100)) << i;
  }
}

}  // namespace
}  // namespace ringdist::test
