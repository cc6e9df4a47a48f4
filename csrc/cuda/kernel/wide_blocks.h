// Encoder and decoder of 1024 elements per warp, for whole blocks without a residual and a
// rotation. A block belongs to a few lanes instead of the warp, and a lane reads four elements at a
// time. Sums need less communication between lanes this way, and values per block are computed once
// for all blocks. Without a residual, the number of instructions limits the speed of a kernel.
//
// A Coder has `kEncodesWide` and `kDecodesWide` besides the members in codec_bodies.h, and the
// others where these are true.
//   `kEncodesWide`, `kDecodesWide`
//                           True if it supports these bodies.
//   `kLanes`                Lanes of a block, each with 32 elements.
//   `kStaged`               Bytes of shared memory for encode_wide().
//   `wide()`                Returns false if the options of the Coder exclude encode_wide().
//   `encode_wide(warp, x, seed, at, out)`
//                           Returns false and does nothing if a block is not ordinary.
//   `FetchedWide<W>`, `fetch_wide(warp, in, fetched)`
//                           Likewise, for decoding.
//   `decode_wide(fetched, quad, lane)`
//                           Returns one quad.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/kernel/batched_calls.h"
#include "cuda/kernel/block_at.h"
#include "cuda/kernel/calls.h"
#include "cuda/kernel/codec_bodies.h"
#include "cuda/kernel/quads.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Leaves the end of a call, and 1024 elements with a block that is not ordinary, to Encoding, which
// writes the same bytes. The next class does likewise.
template <typename Coder>
struct WideEncoding {
  Coder coder;
  const float* in;
  int64_t count;
  Seed seed;
  uint8_t* out;

  static constexpr int kScratch = std::max(Coder::kScratch, Coder::kStaged);
  constexpr int64_t batches() const { return blocks(count, kWideCount); }

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const int64_t begin = index * kWideCount;
    if (begin + kWideCount <= count) {
      Quads<W, Coder::kLanes> x;
      read_quads(warp, in + begin, x);
      uint8_t* const to = out + index * (kWideCount / Coder::kCount) * coder.bytes(Coder::kCount);
      if (coder.encode_wide(warp, x, seed, static_cast<uint64_t>(begin), to)) return;
    }
    const Encoding<Coder, false> by_block{coder, in, {}, count, seed, out};
    constexpr int64_t kEach = kWideCount / (Coder::kCount * Coder::kEncodes);
    for (int64_t i = index * kEach; i < (index + 1) * kEach && i < by_block.batches(); ++i)
      by_block(warp, i);
  }
};

// Decoder for the same blocks. kAdds means that values are added to `out`.
template <typename Coder, bool kAdds>
struct WideDecoding {
  Coder coder;
  const uint8_t* in;
  Seed seed;
  float* out;
  int64_t count;
  int* malformed;

  static constexpr int kScratch = Coder::kScratch;
  constexpr int64_t batches() const { return blocks(count, kWideCount); }

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const int64_t begin = index * kWideCount;
    if (begin + kWideCount <= count && whole(warp, index)) return;
    const Decoding<Coder, false> by_block{coder, in, seed, kAdds, out, count, malformed};
    constexpr int64_t kEach = kWideCount / (Coder::kCount * Coder::kDecodes);
    for (int64_t i = index * kEach; i < (index + 1) * kEach && i < by_block.batches(); ++i)
      by_block(warp, i);
  }

 private:
  template <Warp W>
  RINGDIST_DEVICE bool whole(W& warp, int64_t index) const {
    float* const to = out + index * kWideCount;
    Quads<W, Coder::kLanes> x;
    if constexpr (kAdds) read_quads(warp, to, x);
    const int64_t bytes = kWideCount / Coder::kCount * coder.bytes(Coder::kCount);
    typename Coder::template FetchedWide<W> fetched;
    if (!coder.fetch_wide(warp, in + index * bytes, fetched)) return false;
    each_quad<Coder::kLanes>(warp, [&](int q, int lane, int) {
      const Quad values = coder.decode_wide(fetched, q, lane);
      for (int e = 0; e < 4; ++e) {
        float& sum = x.quad[q][lane].at[e];
        sum = kAdds ? sum + values.at[e] : values.at[e];
      }
    });
    write_quads(warp, x, to);
    return true;
  }
};

inline bool is_aligned(const void* at, uintptr_t to) {
  return reinterpret_cast<uintptr_t>(at) % to == 0;
}

// Calls run(body) with the body that suits a call. Wide bodies need aligned memory.
template <bool kRotated, typename Coder, typename RunBody>
auto with_body(Coder coder, const EncodeCall& call, const RunBody& run) {
  if constexpr (!kRotated && Coder::kEncodesWide) {
    if (call.residual.empty() && coder.wide() && is_aligned(call.in, alignof(Quad)) &&
        is_aligned(call.out, alignof(Octet)))
      return run(WideEncoding<Coder>{coder, call.in, call.count, call.seed, call.out});
  }
  return run(
      Encoding<Coder, kRotated>{coder, call.in, call.residual, call.count, call.seed, call.out});
}

template <bool kRotated, typename Coder, typename RunBody>
auto with_body(Coder coder, const DecodeCall& call, const RunBody& run) {
  const auto [in, seed, adds, out, count, malformed] = call;
  if constexpr (!kRotated && Coder::kDecodesWide) {
    if (is_aligned(out, alignof(Quad)) && is_aligned(in, alignof(Octet))) {
      if (adds) return run(WideDecoding<Coder, true>{coder, in, seed, out, count, malformed});
      return run(WideDecoding<Coder, false>{coder, in, seed, out, count, malformed});
    }
  }
  return run(Decoding<Coder, kRotated>{coder, in, seed, adds, out, count, malformed});
}

// Returns the types of body that with_body() may pass to run().
template <bool kRotated, typename Coder>
auto bodies_of(const EncodeCall&) {
  if constexpr (!kRotated && Coder::kEncodesWide)
    return BodyTypes<WideEncoding<Coder>, Encoding<Coder, kRotated>>();
  else
    return BodyTypes<Encoding<Coder, kRotated>>();
}

template <bool kRotated, typename Coder>
auto bodies_of(const DecodeCall&) {
  if constexpr (!kRotated && Coder::kDecodesWide)
    return BodyTypes<WideDecoding<Coder, true>, WideDecoding<Coder, false>,
                     Decoding<Coder, kRotated>>();
  else
    return BodyTypes<Decoding<Coder, kRotated>>();
}

// Calls launch(body) with the bodies for all calls (CallGatherer).
template <bool kRotated, typename Coder, typename Call, typename Launch>
LaunchError with_bodies(Coder coder, CallSpan<Call> calls, const Launch& launch) {
  CallGatherer gathered(bodies_of<kRotated, Coder>(Call()), launch);
  for (const Call& call : calls)
    with_body<kRotated>(coder, call, [&](const auto& body) { gathered.add(body); });
  return gathered.finish();
}

}  // namespace ringdist::gpu
