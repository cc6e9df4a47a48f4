// Huffman code of a chunk of the codec `lossless`, computed by a warp. It is that of
// kernel/huffman.cc.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/huffman_tree.h"
#include "kernel/lossless_chunk.h"

namespace ringdist::gpu {

inline constexpr int kSymbols = 256;

// A number for each symbol. That of symbol s is part s / 32 of lane s % 32.
template <Warp W>
struct BySymbol {
  static constexpr int kParts = kSymbols / kWarp;

  typename W::template Lanes<uint32_t> part[kParts];
};

// Calls body(symbol, part, lane) for each symbol.
template <Warp W, typename Body>
RINGDIST_DEVICE void each_symbol(W& warp, const Body& body) {
  RINGDIST_UNROLL
  for (int part = 0; part < BySymbol<W>::kParts; ++part)
    warp.each([&](int lane) { body(part * kWarp + lane, part, lane); });
}

// Head of a packed chunk.
struct LosslessSymbols {
  uint8_t first;
  uint8_t last;
  uint8_t lengths[kSymbols / 2];  // two lengths per byte; none if there is only one symbol
};

// Returns the lengths of all codes, which are packed in pairs.
template <Warp W>
RINGDIST_DEVICE BySymbol<W> lengths_of(W& warp, const uint8_t* in, int first, int last) {
  BySymbol<W> out;
  each_symbol(warp, [&](int symbol, int part, int lane) {
    const int i = symbol - first;
    const bool occurs = symbol >= first && symbol <= last;
    const uint32_t pair = occurs ? in[i / 2] : 0u;
    out.part[part][lane] = i % 2 == 0 ? pair & 0xf : pair >> 4;
  });
  return out;
}

// Returns true if every sequence of bits decodes, and no length exceeds the limit. By Kraft, this
// holds if the shares 2^-length of all codes add up to 1.
template <Warp W>
RINGDIST_DEVICE bool is_complete(W& warp, const BySymbol<W>& lengths) {
  typename W::template Lanes<uint32_t> used, wrong;
  warp.each([&](int lane) { used[lane] = wrong[lane] = 0; });
  each_symbol(warp, [&](int, int part, int lane) {
    const uint32_t length = lengths.part[part][lane];
    if (length > kMaxCodeBits) wrong[lane] = 1;
    if (length != 0) used[lane] += (uint32_t{1} << kMaxCodeBits) >> length;
  });
  const bool full = warp.sum(used) == uint32_t{1} << kMaxCodeBits;
  return warp.ballot(wrong) == 0 && full;
}

// Enumerates the canonical codes in order: by length, and by symbol among equal lengths. Calls
// body(symbol, length, code, place) in the lane of the symbol, with the code's first bit as its
// highest. After all codes of a length, calls done(length, code, place) in all lanes, with the code
// and place that would come next.
template <Warp W, typename Body, typename Done>
RINGDIST_DEVICE void each_code(W& warp, const BySymbol<W>& lengths, const Body& body,
                               const Done& done) {
  uint32_t code = 0;
  int place = 0;
  for (int length = 1; length <= kMaxCodeBits; ++length, code <<= 1) {
    RINGDIST_UNROLL
    for (int part = 0; part < BySymbol<W>::kParts; ++part) {
      typename W::template Lanes<uint32_t> is_next;
      warp.each([&](int lane) {
        is_next[lane] = lengths.part[part][lane] == static_cast<uint32_t>(length) ? 1 : 0;
      });
      const uint32_t all = warp.ballot(is_next);
      warp.each([&](int lane) {
        if (is_next[lane] == 0) return;
        const int before = std::popcount(all & lanes_before(lane));
        body(part * kWarp + lane, length, code + static_cast<uint32_t>(before), place + before);
      });
      code += static_cast<uint32_t>(std::popcount(all));
      place += std::popcount(all);
    }
    done(length, code, place);
  }
}

}  // namespace ringdist::gpu
