// Runs the bodies of the device kernels on the host, with a HostWarp, over host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/kernel/calls.h"
#include "cuda/kernel/wide_blocks.h"
#include "support/floats.h"
#include "support/host_warp.h"

namespace ringdist {

using Coded = std::vector<uint8_t>;

template <typename Coder, bool kRotated = false>
Coded encode_on_host(Coder coder, const Floats& in, gpu::ResidualPointers residual = {},
                     gpu::Seed seed = {}) {
  const auto count = static_cast<int64_t>(in.size());
  const auto tail = static_cast<int>(count % Coder::kCount);
  const int64_t bytes =
      count / Coder::kCount * coder.bytes(Coder::kCount) + (tail == 0 ? 0 : coder.bytes(tail));
  Coded out(static_cast<size_t>(bytes));
  gpu::with_body<kRotated>(coder, gpu::EncodeCall{in.data(), residual, count, seed, out.data()},
                           [](const auto& body) { for_each_batch(body); });
  return out;
}

// Decodes `in` into `out`. Returns false for bytes that no encoder produces.
template <typename Coder, bool kRotated = false>
bool decode_on_host(Coder coder, const Coded& in, bool accumulate, Floats& out,
                    gpu::Seed seed = {}) {
  const auto count = static_cast<int64_t>(out.size());
  int malformed = 0;
  gpu::with_body<kRotated>(
      coder, gpu::DecodeCall{in.data(), seed, accumulate, out.data(), count, &malformed},
      [](const auto& body) { for_each_batch(body); });
  return malformed == 0;
}

}  // namespace ringdist
