// Runs kernels that consist of several launches (csrc/cuda/kernel/lossless.h) on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/host_warp.h"

namespace ringdist {

class HostLauncher {
 public:
  // Allocates `count` elements of a T with an alignment of at most 8 bytes. The content is
  // garbage, because a kernel must not rely on it.
  template <typename T>
  T* memory(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    pieces_.push_back(std::make_unique<Piece>((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t),
                                              0xa5a5a5a5a5a5a5a5));
    return reinterpret_cast<T*>(pieces_.back()->data());
  }
  template <typename Body>
  void launch(const Body& body) {
    for_each_batch(body);
  }

 private:
  using Piece = std::vector<uint64_t>;  // on the heap, so that AddressSanitizer checks accesses
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace ringdist
