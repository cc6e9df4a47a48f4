// Kernels that are several launches (csrc/cuda/kernel/lossless.h), run on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/host_warp.h"

namespace ringdist {

class HostLauncher {
 public:
  // For a T aligned to 8 bytes at most. What it holds no kernel may count on.
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
  using Piece = std::vector<uint64_t>;  // on the heap, for AddressSanitizer
  std::vector<std::unique_ptr<Piece>> pieces_;
};

}  // namespace ringdist
