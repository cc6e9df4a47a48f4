// The sequence of launches that encodes or decodes `lossless`. Each launch uses the results of the
// one before.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernel/calls.h"
#include "cuda/kernel/lossless_decoding.h"
#include "cuda/kernel/lossless_encoding.h"
#include "cuda/kernel/lossless_planning.h"

namespace ringdist::gpu {

// Encodes. A Launcher has launch(body), which runs bodies in order, and memory<T>(count) for
// temporary memory.
template <typename Stored, typename Launcher>
void launch_lossless(Launcher& launcher, const EncodeCall& call) {
  const int64_t chunks = lossless_chunks(call.count);
  auto* const begin = launcher.template memory<uint64_t>(chunks + 1);
  auto* const symbols = launcher.template memory<LosslessSymbols>(chunks);
  const EncodeInput given{call.in, call.residual};
  launcher.launch(LosslessPlanning<Stored>{given, call.count, symbols, call.out});
  launcher.launch(LosslessLength<Stored>{{call.count, begin}, call.out});
  launcher.launch(LosslessEncoding<Stored>{given, call.count, symbols, begin, call.out});
}

// Decodes.
template <typename Stored, typename Launcher>
void launch_lossless(Launcher& launcher, const DecodeCall& call) {
  auto* const begin = launcher.template memory<uint64_t>(lossless_chunks(call.count) + 1);
  launcher.launch(LosslessStarts<Stored>{{call.count, begin}, call.in, call.malformed});
  launcher.launch(LosslessDecoding<Stored>{call.in, begin, call.accumulate, call.out, call.count,
                                           call.malformed});
}

// Dispatches on `dtype`, which is fp32, bf16 or fp16.
template <typename Launcher, typename Call>
void launch_lossless(Launcher& launcher, DType dtype, const Call& call) {
  if (dtype == DType::kFloat32) return launch_lossless<StoredFloat32>(launcher, call);
  if (dtype == DType::kBFloat16) return launch_lossless<StoredBFloat16>(launcher, call);
  launch_lossless<StoredFloat16>(launcher, call);
}

}  // namespace ringdist::gpu
