// The launches of one Coder's kernels: each family of codecs compiles its own. nvcc only.
#pragma once

#include "cuda/kernel/blocks.h"
#include "cuda/kernel/calls.h"
#include "cuda/kernel/coding.h"

namespace ringdist::gpu {

template <bool kRotated, typename Coder>
LaunchError launch(Coder coder, const EncodeCall& call, void* stream) {
  const Encoding<Coder, kRotated> body{coder, call.in, call.owed, call.count, call.seed, call.out};
  return for_each_batch(stream, body);
}

template <bool kRotated, typename Coder>
LaunchError launch(Coder coder, const DecodeCall& call, void* stream) {
  const Decoding<Coder, kRotated> body{coder,    call.in,    call.seed,     call.accumulate,
                                       call.out, call.count, call.malformed};
  return for_each_batch(stream, body);
}

template <typename Coder, typename Call>
LaunchError launch(Coding coding, Coder coder, const Call& call, void* stream) {
  return coding.rotated ? launch<true>(coder, call, stream) : launch<false>(coder, call, stream);
}

}  // namespace ringdist::gpu
