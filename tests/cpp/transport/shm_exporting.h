// Shared tensors, and ends of transport `shm` that export them.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "os/shared_block_registry.h"
#include "transport/shm_fixture.h"

namespace ringdist::test {

inline constexpr size_t kBytes = 300'000;
inline constexpr size_t kPart = 100'000;

// A tensor in a shared block.
class Tensor {
 public:
  explicit Tensor(int value = 0, size_t bytes = kBytes) : bytes_(bytes) {
    data_ = SharedBlockRegistry::of_process().allocate(bytes).value();
    fill(value);
  }
  ~Tensor() { EXPECT_TRUE(SharedBlockRegistry::of_process().free(data_)); }
  Tensor(const Tensor&) = delete;

  void fill(int value) { std::ranges::fill(all(), static_cast<std::byte>(value)); }
  Bytes all() const { return {data_, bytes_}; }
  ConstBytes part(size_t at = 0) const { return all().subspan(at, kPart); }

 private:
  const size_t bytes_;
  std::byte* data_;
};

inline uint64_t read_in_place() { return SharedBlockRegistry::of_process().figures().bytes_read; }

// Returns the number of mappings of shared tensors in this process: one of the owner, and one of
// each reader.
inline int mapped() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("/memfd:ringdist-tensor") != std::string::npos;
  return count;
}

// Lets the ends poll their sockets, which they do every millisecond.
inline void look(std::initializer_list<End*> ends) {
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (End* end : ends) end->transport->progress();
  }
}

// A first send offers the block, and the peer maps it.
inline void export_block(End& from, End& to, const Tensor& tensor) {
  const int before = mapped();
  from.send(to, tensor.part());
  ASSERT_TRUE(together({&from, &to}, [&] { return mapped() > before && !to.got.empty(); }));
  look({&from});
  to.got.clear();
  from.sent = 0;
}

// While it exists, no descriptor can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &usual_);
    const rlimit few{4, usual_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &usual_); }
  NoDescriptors(const NoDescriptors&) = delete;

 private:
  rlimit usual_{};
};

}  // namespace ringdist::test
