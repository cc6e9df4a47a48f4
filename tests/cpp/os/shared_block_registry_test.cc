#include "os/shared_block_registry.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>
#include <vector>

#include "os/doorbell.h"
#include "os/epoll.h"
#include "os/host.h"
#include "os/memfd.h"

namespace ringdist {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

std::byte* made_block(size_t bytes = kBlockBytes) {
  auto data = SharedBlockRegistry::of_process().allocate(bytes);
  EXPECT_TRUE(data.ok()) << data.error().what();
  EXPECT_NE(data.value(), nullptr);
  return data.value();
}

bool release(std::byte* data) { return SharedBlockRegistry::of_process().free(data); }

std::shared_ptr<SharedBlock> find(const std::byte* data, size_t bytes) {
  return SharedBlockRegistry::of_process().find({data, bytes});
}

TEST(SharedBlockRegistry, AreFoundByWhatLiesInThem) {
  std::byte* const data = made_block();
  EXPECT_EQ(find(data, kBlockBytes)->data(), data);
  EXPECT_EQ(find(data + 1000, 10)->data(), data);
  EXPECT_EQ(find(data + kBlockBytes - 1, 1)->data(), data);
  EXPECT_EQ(find(data + kBlockBytes - 1, 2), nullptr);
  EXPECT_EQ(find(data - 1, 2), nullptr);
  const std::vector<std::byte> elsewhere(100);
  EXPECT_EQ(find(elsewhere.data(), 100), nullptr);
  EXPECT_FALSE(release(data + 4096));
  EXPECT_TRUE(release(data));
  EXPECT_FALSE(release(data));
  EXPECT_EQ(find(data, 1), nullptr);
}

TEST(SharedBlockRegistry, AreZeroWhenNewAndOfAnySize) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{4097}, kBlockBytes + 3}) {
    std::byte* const data = made_block(bytes);
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    data[bytes - 1] = std::byte{1};
    EXPECT_GE(find(data, bytes)->size(), bytes);
    EXPECT_TRUE(release(data));
  }
}

// Readers have the memory for as long as they map it, and cannot write to it.
TEST(SharedBlockRegistry, AreReadThroughTheirFile) {
  std::byte* const data = made_block();
  data[5] = std::byte{7};
  const auto block = find(data, kBlockBytes);
  auto reader = map_memory(block->file(), kBlockBytes, /*writable=*/false);
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(map_memory(block->file(), kBlockBytes, /*writable=*/true).ok());
  EXPECT_EQ(reader.value().data()[5], std::byte{7});
  EXPECT_FALSE(block->freed());
  EXPECT_TRUE(release(data));
  EXPECT_TRUE(block->freed());
  EXPECT_EQ(reader.value().data()[5], std::byte{7});
}

// Enters a region in its constructor and leaves it in its destructor.
struct Region {
  Region() { SharedBlockRegistry::of_process().enter_region(); }
  ~Region() { SharedBlockRegistry::of_process().leave_region(); }
};

TEST(SharedBlockRegistry, AreKeptForTheNextOfTheirSizeWithinARegion) {
  std::byte* data = nullptr;
  std::shared_ptr<SharedBlock> block;
  {
    const Region region;
    data = made_block();
    block = find(data, 1);
    const auto before = SharedBlockRegistry::of_process().figures();
    EXPECT_TRUE(release(data));
    EXPECT_FALSE(release(data)) << "it is free";
    EXPECT_EQ(SharedBlockRegistry::of_process().figures().blocks, before.blocks - 1);
    EXPECT_EQ(SharedBlockRegistry::of_process().figures().bytes, before.bytes - kBlockBytes);
    std::byte* const larger = made_block(kBlockBytes + 1);
    std::byte* const small = made_block(kBlockBytes / 2);
    EXPECT_NE(larger, data);
    EXPECT_NE(small, data) << "it would waste much";
    EXPECT_FALSE(block->freed());
    EXPECT_EQ(made_block(kBlockBytes - 5000), data);
    std::byte* const other = made_block(kBlockBytes);
    EXPECT_NE(other, data) << "it is in use";
    for (std::byte* each : {larger, small, data, other}) EXPECT_TRUE(release(each));
    {
      const Region inner;
    }
    EXPECT_FALSE(block->freed());
  }
  EXPECT_TRUE(block->freed()) << "nobody asks for more";
  EXPECT_EQ(find(data, 1), nullptr);
}

TEST(SharedBlockRegistry, AreKeptUpToALimit) {
  constexpr size_t kLarge = SharedBlockRegistry::kMostIdle / 2 - 4096;
  if (available_memory().value_or(0) < 3 * SharedBlockRegistry::kMostIdle)
    GTEST_SKIP() << "the machine has too little memory for this";
  const Region region;
  std::byte* const first = made_block(kLarge);
  std::byte* const second = made_block(kLarge);
  std::byte* const third = made_block(kBlockBytes);
  const auto oldest = find(first, 1);
  const auto newest = find(third, 1);
  for (std::byte* each : {first, second}) release(each);
  EXPECT_FALSE(oldest->freed());
  release(third);
  EXPECT_TRUE(oldest->freed());
  EXPECT_FALSE(newest->freed());
}

// A block that a child has mapped must not become another tensor of its parent, nor of the child.
TEST(SharedBlockRegistry, ThatAChildHasAreNotUsedAgain) {
  const Region region;
  std::byte* const idle = made_block();
  std::byte* const used = made_block();
  release(idle);
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    char word = 0;
    if (read(go[0], &word, 1) != 1) _exit(1);
    std::byte* const own = SharedBlockRegistry::of_process().allocate(kBlockBytes).value();
    *own = std::byte{1};  // a block of the parent would show this write
    *used = std::byte{1};
    _exit(0);
  }
  EXPECT_EQ(made_block(), idle);
  EXPECT_TRUE(release(used));
  std::byte* const other = made_block();
  *other = std::byte{7};
  ASSERT_EQ(write(go[1], "!", 1), 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int end : go) close(end);
  EXPECT_EQ(*other, std::byte{7});
  EXPECT_EQ(*idle, std::byte{0});
  for (std::byte* each : {idle, other}) release(each);
}

TEST(SharedBlockRegistry, TheDoorbellsRingWhenAnExportedBlockIsFreed) {
  const Doorbell doorbell = std::move(Doorbell::create().value());
  Epoll epoll = std::move(Epoll::create().value());
  ASSERT_FALSE(epoll.add(doorbell.get(), EPOLLIN, 1));
  const auto rung = [&] { return !epoll.wait(Duration(0)).empty(); };
  SharedBlockRegistry& blocks = SharedBlockRegistry::of_process();
  blocks.watch(doorbell);
  const uint64_t before = blocks.frees();
  release(made_block());
  EXPECT_FALSE(rung());
  std::byte* const data = made_block();
  find(data, 1)->mark_exported();
  release(data);
  EXPECT_TRUE(rung());
  doorbell.drain();
  EXPECT_EQ(blocks.frees(), before + 1);
  blocks.unwatch(doorbell);
  std::byte* const other = made_block();
  find(other, 1)->mark_exported();
  release(other);
  EXPECT_FALSE(rung());
}

TEST(SharedBlockRegistry, FiguresSayWhatThereIs) {
  SharedBlockRegistry& blocks = SharedBlockRegistry::of_process();
  const auto before = blocks.figures();
  std::byte* const data = made_block();
  blocks.count_read(100);
  const auto after = blocks.figures();
  EXPECT_EQ(after.blocks, before.blocks + 1);
  EXPECT_EQ(after.bytes, before.bytes + kBlockBytes);
  EXPECT_EQ(after.bytes_read, before.bytes_read + 100);
  release(data);
  EXPECT_EQ(blocks.figures().bytes, before.bytes);
}

TEST(SharedBlockRegistry, MoreThanTheMachineHasIsRefused) {
  const auto available = available_memory();
  if (!available) GTEST_SKIP() << "no /proc/meminfo here";
  for (const size_t bytes : {*available, size_t{1} << 50}) {
    const auto refused = SharedBlockRegistry::of_process().allocate(bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind(), ErrorKind::kSystem);
    EXPECT_NE(refused.error().message().find(std::to_string(bytes)), std::string::npos)
        << refused.error().message();
  }
}

TEST(SharedBlockRegistry, BeyondTheLimitThereAreNone) {
  SharedBlockRegistry& blocks = SharedBlockRegistry::of_process();
  std::vector<std::byte*> all;
  while (all.size() <= SharedBlockRegistry::kMost) {
    const auto one = blocks.allocate(1);
    ASSERT_TRUE(one.ok()) << one.error().what();
    if (one.value() == nullptr) break;
    all.push_back(one.value());
  }
  EXPECT_LE(all.size(), SharedBlockRegistry::kMost);
  EXPECT_GT(all.size(), 10u);
  release(all.back());
  all.back() = made_block(1);  // there is room for one again
  for (std::byte* one : all) EXPECT_TRUE(release(one));
}

TEST(SharedBlockRegistry, WithoutDescriptorsThereAreNone) {
#ifdef RINGDIST_SANITIZED
  GTEST_SKIP() << "the sanitizer looks at memory through descriptors of its own";
#endif
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit few{3, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  const auto none = SharedBlockRegistry::of_process().allocate(kBlockBytes);
  setrlimit(RLIMIT_NOFILE, &limit);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none.value(), nullptr);
  EXPECT_TRUE(release(made_block()));
}

// Runs `body` in a child and returns its result, passed by the exit code.
template <typename Body>
bool holds_in_a_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(SharedBlockRegistry, AForkedChildWritesWhatItsParentSees) {
  std::byte* const data = made_block();
  data[1] = std::byte{1};
  EXPECT_TRUE(holds_in_a_child([&] {
    const bool reads = data[1] == std::byte{1};
    data[2] = std::byte{2};
    const bool inherits = find(data, 1) == nullptr;  // its file is closed, so it cannot be exported
    const bool frees = release(data);
    std::byte* const own = SharedBlockRegistry::of_process().allocate(kBlockBytes).value();
    return reads && inherits && frees && own != nullptr && find(own, 1) != nullptr && release(own);
  }));
  EXPECT_EQ(data[2], std::byte{2});
  EXPECT_TRUE(release(data));
}

// A child finds a consistent registry, whatever other threads did at the time of the fork.
TEST(SharedBlockRegistry, AreInOrderInAChildOfAnyMoment) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's malloc does not outlive a fork while another thread is in it";
#endif
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) {
      std::byte* const data = SharedBlockRegistry::of_process().allocate(4096).value();
      (void)find(data, 1);
      release(data);
    }
  });
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(holds_in_a_child([] {
      alarm(10);
      std::byte* const own = SharedBlockRegistry::of_process().allocate(4096).value();
      return own != nullptr && release(own);
    }));
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace ringdist
