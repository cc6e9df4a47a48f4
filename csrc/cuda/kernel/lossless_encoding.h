// Third of the three launches that encode `lossless`. A warp writes a chunk and its residual.
#pragma once

#include <cstdint>

#include "cuda/kernel/encode_input.h"
#include "cuda/kernel/lossless_code.h"
#include "cuda/kernel/lossless_type.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Writes bytes from shared memory to `out`, four at a time. The first and the last bytes are
// written one by one, because other warps may write to the same words.
template <Warp W>
RINGDIST_DEVICE void write_bytes(W& warp, const uint8_t* from, int count, uint8_t* out) {
  const auto off = static_cast<int>(reinterpret_cast<uintptr_t>(out) % sizeof(uint32_t));
  const int wanted = off == 0 ? 0 : static_cast<int>(sizeof(uint32_t)) - off;
  const int before = wanted < count ? wanted : count;
  const int end = before + (count - before) / 4 * 4;  // behind the last whole word
  warp.each([&](int lane) {
    if (lane < before) out[lane] = from[lane];
    for (int i = before + 4 * lane; i < end; i += 4 * kWarp) {
      uint32_t word = 0;
      for (int byte = 0; byte < 4; ++byte) word |= uint32_t{from[i + byte]} << (8 * byte);
      *reinterpret_cast<uint32_t*>(out + i) = word;
    }
    if (end + lane < count) out[end + lane] = from[end + lane];
  });
}

// Codes of a chunk. A code is in the lowest bits, with its first bit lowest, and its length is
// above.
struct LosslessCodes {
  static constexpr int kMask = (1 << kMaxCodeBits) - 1;

  uint16_t code[kSymbols];

  template <Warp W>
  RINGDIST_DEVICE void set(W& warp, const BySymbol<W>& lengths) {
    each_code(
        warp, lengths,
        [&](int symbol, int length, uint32_t next, int) {
          const uint32_t bits = reversed(next) >> (32 - length);
          code[symbol] =
              static_cast<uint16_t>(bits | static_cast<uint32_t>(length) << kMaxCodeBits);
        },
        [](int, uint32_t, int) {});
    warp.sync();
  }
};

// Shared memory in which the codes of a run are joined. It has room for 7 bits of the run before.
struct LosslessWords {
  uint32_t word[LosslessChunk::kRun * kMaxCodeBits / 32 + 1];
};

// Writes codes as bits, run by run. Each lane handles eight consecutive symbols.
template <Warp W>
class LosslessBits {
 public:
  RINGDIST_DEVICE LosslessBits(LosslessWords& words, uint8_t* out) : words_(words), out_(out) {}

  // Appends the codes of a run. Returns their bits. No lane may change `symbols` until the next
  // sync().
  RINGDIST_DEVICE uint32_t put(W& warp, const LosslessCodes& codes, const uint8_t* symbols,
                               int count) {
    Lanes<uint64_t> low, high;
    Lanes<uint32_t> low_bits, bits;
    warp.each([&](int lane) {
      for (int i = lane; i < kWords; i += kWarp) words_.word[i] = i == 0 ? carry_ : 0;
      low[lane] = high[lane] = 0;
      const int first = kHalf * 2 * lane;
      low_bits[lane] = join(codes, symbols + first, count - first, low[lane]);
      const uint32_t more = join(codes, symbols + first + kHalf, count - first - kHalf, high[lane]);
      bits[lane] = low_bits[lane] + more;
    });
    warp.sync();
    const auto before = sums_before(warp, bits);
    warp.each([&](int lane) {
      const uint32_t at = held_ + before[lane];
      add(warp, at, low[lane]);
      add(warp, at + low_bits[lane], high[lane]);
    });
    warp.sync();
    const uint32_t all = warp.sum(bits);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(words_.word);
    const uint32_t whole = (held_ + all) / 8;
    write_bytes(warp, bytes, static_cast<int>(whole), out_);
    carry_ = bytes[whole];
    held_ = (held_ + all) % 8;
    out_ += whole;
    warp.sync();
    return all;
  }

  // Pads the last byte with zeros.
  RINGDIST_DEVICE void finish(W& warp) {
    warp.each([&](int lane) {
      if (lane == 0 && held_ != 0) *out_ = static_cast<uint8_t>(carry_);
    });
  }

 private:
  template <typename T>
  using Lanes = typename W::template Lanes<T>;
  static constexpr int kWords = sizeof(LosslessWords) / sizeof(uint32_t);
  static constexpr int kHalf =
      LosslessChunk::kRun / kWarp / 2;  // symbols; their codes fit into 64 bits
  static_assert(kHalf * kMaxCodeBits <= 64 - 8);

  RINGDIST_DEVICE static uint32_t join(const LosslessCodes& codes, const uint8_t* symbols,
                                       int count, uint64_t& bits) {
    uint32_t held = 0;
    RINGDIST_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      if (i >= count) continue;
      const uint32_t code = codes.code[symbols[i]];
      bits |= uint64_t{code & LosslessCodes::kMask} << held;
      held += code >> kMaxCodeBits;
    }
    return held;
  }

  // Adds a lane's bits to the words. Lanes may share words, but not bits, so no sum has a carry.
  RINGDIST_DEVICE void add(const W& warp, uint32_t at, uint64_t bits) const {
    uint32_t* word = words_.word + at / 32;
    const uint32_t shift = at % 32;
    const uint64_t rest = bits >> (32 - shift);
    const auto first = static_cast<uint32_t>(bits << shift);
    const auto second = static_cast<uint32_t>(rest);
    const auto third = static_cast<uint32_t>(rest >> 32);
    if (first != 0) warp.add(word, first);
    if (second != 0) warp.add(word + 1, second);
    if (third != 0) warp.add(word + 2, third);
  }

  LosslessWords& words_;
  uint8_t* out_;
  uint32_t carry_ = 0;  // bits of the last, incomplete byte
  uint32_t held_ = 0;   // number of those bits, below 8
};

// Encodes all chunks as planned.
template <typename Stored>
struct LosslessEncoding {
  EncodeInput given;
  int64_t count;
  const LosslessSymbols* symbols;  // from LosslessPlanning
  const uint64_t* begin;           // offset of each chunk in `out`
  uint8_t* out;

 private:
  using Bits = typename Stored::Bits;

  struct Memory {
    LosslessCodes codes;
    alignas(8) uint8_t symbols[LosslessChunk::kRun];  // symbols of a run
    alignas(8) uint8_t rests[LosslessChunk::kRun * sizeof(Bits)];
    LosslessWords words;
  };

 public:
  static constexpr int kScratch = (sizeof(Memory) + 15) / 16 * 16;
  constexpr int64_t batches() const { return lossless_chunks(count); }

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const auto chunk = lossless_chunk<Stored>(index, count);
    uint8_t* const to = out + begin[index];
    warp.sync();  // after the previous chunk
    const int size = load16(out + kLosslessLength + index * kLosslessSize);
    if (size == chunk.raw_bytes()) return write_raw(warp, chunk, index, to);
    write_packed(warp, chunk, index, to);
  }

 private:
  template <Warp W>
  RINGDIST_DEVICE static Memory& memory(W& warp) {
    return *static_cast<Memory*>(warp.scratch());
  }

  // Calls body(run, stored) with the bits of each run's elements, and stores their residuals.
  template <Warp W, typename Body>
  RINGDIST_DEVICE void each_run(W& warp, const LosslessChunk& chunk, int64_t index,
                                const Body& body) const {
    const bool applies = given.residual.applies();
    Values<W, kRunParts> next;
    given.read(warp, lossless_run(chunk, index, 0), applies, next);
    for (int run = 0; run < chunk.runs(); ++run) {
      const Values<W, kRunParts> x = next;
      // Reads the next run before this one is processed, to hide the latency of memory.
      if (run + 1 < chunk.runs())
        given.read(warp, lossless_run(chunk, index, run + 1), applies, next);
      typename W::template Lanes<Bits> stored[kRunParts];
      RINGDIST_UNROLL
      for (int part = 0; part < kRunParts; ++part)
        warp.each([&](int lane) {
          const float own = x.part[part][lane];
          stored[part][lane] = applies ? Stored::narrow_sum(own) : Stored::narrow(own);
        });
      if (!given.residual.empty()) {
        Values<W, kRunParts> sent;
        RINGDIST_UNROLL
        for (int part = 0; part < kRunParts; ++part)
          warp.each([&](int lane) { sent.part[part][lane] = Stored::widen(stored[part][lane]); });
        given.keep_loss(warp, lossless_run(chunk, index, run), applies, x, sent);
      }
      body(run, stored);
    }
  }

  template <Warp W>
  RINGDIST_DEVICE void write_raw(W& warp, const LosslessChunk& chunk, int64_t index,
                                 uint8_t* to) const {
    uint8_t* const staged = memory(warp).rests;
    each_run(warp, chunk, index, [&](int run, const auto& stored) {
      const int elements = chunk.elements_of(run);
      each_element<kRunParts>(warp, elements, [&](int part, int lane, int i) {
        reinterpret_cast<Bits*>(staged)[i] = stored[part][lane];
      });
      warp.sync();
      write_bytes(warp, staged, elements * chunk.element,
                  to + run * LosslessChunk::kRun * chunk.element);
      warp.sync();
    });
  }

  template <Warp W>
  RINGDIST_DEVICE void write_packed(W& warp, const LosslessChunk& chunk, int64_t index,
                                    uint8_t* to) const {
    Memory& staged = memory(warp);
    const LosslessSymbols& plan = symbols[index];
    const int first = plan.first;
    const int last = plan.last;
    const bool coded = first != last;
    if (coded) staged.codes.set(warp, lengths_of(warp, plan.lengths, first, last));
    warp.each([&](int lane) {
      const int head = coded ? chunk.bits_at(first, last) : chunk.lengths_at();
      const auto* const planned = reinterpret_cast<const uint8_t*>(&plan);
      for (int i = lane; i < head; i += kWarp) to[i] = planned[i];
    });
    LosslessBits<W> codes(staged.words, to + chunk.codes_at(first, last));
    const int size = load16(out + kLosslessLength + index * kLosslessSize);
    uint8_t* const rests = to + size - chunk.rest_bytes();
    each_run(warp, chunk, index, [&](int run, const auto& stored) {
      const int elements = chunk.elements_of(run);
      each_element<kRunParts>(warp, elements, [&](int part, int lane, int i) {
        const Bits x = stored[part][lane];
        staged.symbols[i] = Stored::symbol(x);
        for (int byte = 0; byte < Stored::kRest; ++byte)
          staged.rests[i * Stored::kRest + byte] =
              static_cast<uint8_t>(Stored::rest(x) >> (8 * byte));
      });
      warp.sync();
      write_bytes(warp, staged.rests, elements * Stored::kRest,
                  rests + run * LosslessChunk::kRun * Stored::kRest);
      if (coded) {
        const uint32_t bits = codes.put(warp, staged.codes, staged.symbols, elements);
        warp.each([&](int lane) {
          if (lane == 0)
            store16(static_cast<uint16_t>(bits), to + chunk.bits_at(first, last) + 2 * run);
        });
      }
      warp.sync();
    });
    if (coded) codes.finish(warp);
  }
};

}  // namespace ringdist::gpu
