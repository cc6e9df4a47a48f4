// The connection over which shared tensors are exported. It exists while something is exported,
// and its loss does no harm.
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "transport/shm/block_exports.h"
#include "transport/shm_exporting.h"

namespace ringdist::test {
namespace {

// Returns the number of open descriptors of this process, which has all ends.
std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

std::vector<int> open_sockets() {
  std::vector<int> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    if (read_symlink(entry.path(), closed).string().starts_with("socket:"))
      out.push_back(std::stoi(entry.path().filename()));
  }
  std::ranges::sort(out);
  return out;
}

// Each end of the connection costs one descriptor while exports exist.
TEST(ShmExportsLine, CostADescriptorWhileTheyLast) {
  End a;
  End b;
  connect(a, b);
  connect(b, a);
  const auto before = open_descriptors();
  {
    const Tensor first(1);
    const Tensor second(2);
    export_block(a, b, first);
    export_block(a, b, second);
    EXPECT_EQ(open_descriptors() - before, 2 + 2);  // plus one per tensor
    export_block(b, a, first);
    EXPECT_EQ(open_descriptors() - before, 2 + 2 + 2);
  }
  ASSERT_TRUE(together({&a, &b}, [&] { return open_descriptors() == before; }));
  const Tensor third(3);
  export_block(a, b, third);
  EXPECT_EQ(open_descriptors() - before, 2 + 1);
}

// The next connection may begin before the reader has noticed the end of the previous one.
TEST(ShmExportsLine, AConnectionFollowsAnotherAtOnce) {
  End a;
  End b;
  connect(a, b);
  const auto before = open_descriptors();
  for (int i = 0; i < 10; ++i) {
    {
      const Tensor first(1);
      export_block(a, b, first);
    }
    a.transport->progress();
    EXPECT_EQ(open_descriptors() - before, 1) << "b has not looked";
    auto second = std::make_unique<Tensor>(2);
    a.send(b, second->part());
    look({&a, &b});
    const uint64_t read = read_in_place();
    a.send(b, second->part());
    EXPECT_EQ(read_in_place() - read, kPart);
    ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 2; }));
    EXPECT_EQ(mapped(), 2);
    b.got.clear();
    second.reset();
    ASSERT_TRUE(together({&a, &b}, [] { return mapped() == 0; }));
  }
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
}

// A child holds such copies between fork() and its first instructions.
TEST(ShmExportsLine, AConnectionFollowsAnotherOfWhichCopiesAreOpen) {
  End a;
  End b;
  connect(a, b);
  const auto sockets = open_sockets();
  std::vector<int> copies;
  {
    const Tensor first(1);
    export_block(a, b, first);
    for (const int fd : open_sockets())
      if (!std::ranges::binary_search(sockets, fd)) copies.push_back(dup(fd));
  }
  ASSERT_EQ(copies.size(), 2u);
  a.transport->progress();
  const Tensor second(2);
  a.send(b, second.part());
  look({&a, &b});
  const uint64_t read = read_in_place();
  a.send(b, second.part());
  EXPECT_EQ(read_in_place() - read, kPart);
  ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 2; }));
  EXPECT_EQ(b.got.back(), numbered(kPart, 2));
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  for (const int fd : copies) close(fd);
}

TEST(ShmExportsLine, WhoCannotDialCopies) {
#ifdef RINGDIST_SANITIZED
  GTEST_SKIP() << "the sanitizer looks at memory through descriptors of its own";
#endif
  End a;
  End b;
  connect(a, b);
  Tensor tensor(1);
  const uint64_t before = read_in_place();
  {
    const NoDescriptors none;
    for (int i = 0; i < 5; ++i) {
      tensor.fill(i);
      a.send(b, tensor.part());
    }
    EXPECT_EQ(a.sent, 5);
    ASSERT_TRUE(together({&a, &b}, [&] { return b.got.size() == 5; }));
  }
  EXPECT_EQ(b.got[4], numbered(kPart, 4));
  EXPECT_EQ(read_in_place(), before);
  EXPECT_TRUE(a.lost.empty() && b.lost.empty());
  // Exports are retried after a while.
  ASSERT_TRUE(together({&a, &b}, [&] {
    if (a.sent == static_cast<int>(b.got.size())) a.send(b, tensor.part());
    return read_in_place() > before;
  }));
}

// Exports exist, some of them in messages that the reader has not read. Those messages arrive, and
// the next ones are copied.
TEST(ShmExportsLine, ABrokenConnectionFailsNothing) {
  for (const bool reader_sees_it_first : {true, false}) {
    End a;
    End b;
    connect(a, b);
    connect(b, a);  // else every other message is copied
    const auto sockets = open_sockets();
    Tensor tensor(1);
    export_block(a, b, tensor);
    b.send(a, {});  // so that a has work
    const uint64_t before = read_in_place();
    for (int i = 0; i < 3; ++i) a.send(b, tensor.part());
    EXPECT_EQ(read_in_place() - before, 3 * kPart);
    for (const int fd : open_sockets())
      if (!std::ranges::binary_search(sockets, fd)) shutdown(fd, SHUT_RDWR);
    if (reader_sees_it_first) {
      look({&b});
      a.send(b, tensor.part());
    }
    look({&a});
    a.send(b, tensor.part());
    ASSERT_TRUE(together({&a, &b}, [&] { return a.sent == (reader_sees_it_first ? 5 : 4); }));
    for (const auto& got : b.got) EXPECT_EQ(got, numbered(kPart, 1));
    EXPECT_EQ(a.failed, 0);
    EXPECT_TRUE(a.lost.empty() && b.lost.empty());
    EXPECT_EQ(open_sockets(), sockets);
    // After a while a new connection exists.
    const uint64_t meanwhile = read_in_place();
    ASSERT_TRUE(together({&a, &b}, [&] {
      if (a.sent == static_cast<int>(b.got.size())) a.send(b, tensor.part());
      return read_in_place() > meanwhile;
    }));
    ASSERT_TRUE(together({&a, &b}, [&] { return a.sent == static_cast<int>(b.got.size()); }));
    EXPECT_EQ(mapped(), 2) << "what the first had mapped is mapped no more";
  }
}

}  // namespace
}  // namespace ringdist::test
