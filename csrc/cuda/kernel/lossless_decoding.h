// Second of the two launches that decode `lossless`. A warp decodes a chunk, and each lane a run of
// it.
#pragma once

#include <cstdint>

#include "cuda/kernel/lossless_code.h"
#include "cuda/kernel/lossless_type.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Reads the bits of one run of codes. Belongs to one lane.
class LosslessReader {
 public:
  LosslessReader() = default;
  // Starts at bit `bit` of `codes`. The 3 bytes in front may be read, too. Bits beyond `end` are 0.
  RINGDIST_DEVICE LosslessReader(const uint8_t* codes, uint32_t bit, const uint8_t* end)
      : end_(end) {
    const uint8_t* const byte = codes + bit / 8;
    const auto off = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(byte) % sizeof(uint32_t));
    next_ = byte - off;
    fill(1);
    drop(8 * off + bit % 8);
  }

  // Ensures that at least `bits` bits (up to 32) are available. Adds a word only to fewer than 32
  // bits, so that 64 are enough.
  RINGDIST_DEVICE void fill(uint32_t bits) {
    if (held_ >= bits) return;
    bits_ |= uint64_t{word()} << held_;
    held_ += 32;
    next_ += sizeof(uint32_t);
  }
  // Returns the available bits, with the next one lowest.
  RINGDIST_DEVICE uint32_t peek() const { return static_cast<uint32_t>(bits_); }
  RINGDIST_DEVICE void drop(uint32_t bits) {
    bits_ >>= bits;
    held_ -= bits;
  }

 private:
  RINGDIST_DEVICE uint32_t word() const {
    if (end_ - next_ >= static_cast<ptrdiff_t>(sizeof(uint32_t)))
      return *reinterpret_cast<const uint32_t*>(next_);
    uint32_t out = 0;
    for (int i = 0; i < end_ - next_; ++i) out |= uint32_t{next_[i]} << (8 * i);
    return out;
  }

  const uint8_t* next_ = nullptr;  // aligned to 4 bytes
  const uint8_t* end_ = nullptr;
  uint64_t bits_ = 0;
  uint32_t held_ = 0;
};

// Maps codes to symbols.
struct LosslessTable {
  uint8_t symbol[kSymbols];         // in the order of the codes
  uint32_t end[kMaxCodeBits + 1];   // end of the codes of a length, padded with zeros to 12 bits
  int32_t place[kMaxCodeBits + 1];  // index of a code in `symbol`, less the code, by length
};

// Decodes all chunks of a call. Sets *malformed if a chunk is invalid.
template <typename Stored>
struct LosslessDecoding {
  const uint8_t* in;
  // offset of each chunk in `in`; the last entry is 0 if the sizes are invalid
  const uint64_t* begin;
  bool accumulate;
  float* out;
  int64_t count;
  int* malformed;

 private:
  using Bits = typename Stored::Bits;
  static constexpr int kRuns = LosslessChunk::kRuns;
  static_assert(kRuns == kWarp);
  // Number of symbols that a lane decodes before the warp turns the symbols of all lanes into
  // elements.
  static constexpr int kSome = kWarp;
  static constexpr int kStride = kSome + 4;  // padded so that lanes write to different banks

  struct Memory {
    LosslessTable table;
    uint8_t symbols[kRuns * kStride];
  };

 public:
  static constexpr int kScratch = (sizeof(Memory) + 15) / 16 * 16;
  constexpr int64_t batches() const { return lossless_chunks(count); }

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    // LosslessStarts has found the sizes invalid, and has set *malformed.
    if (begin[batches()] == 0) return;
    const auto chunk = lossless_chunk<Stored>(index, count);
    const uint8_t* const from = in + begin[index];
    const int size = load16(in + kLosslessLength + index * kLosslessSize);
    warp.sync();  // after the previous chunk
    const bool good = size == chunk.raw_bytes() ? read_raw(warp, chunk, index, from)
                                                : read_packed(warp, chunk, index, from, size);
    warp.each([&](int lane) {
      if (!good && lane == 0) *malformed = 1;
    });
  }

 private:
  template <Warp W>
  RINGDIST_DEVICE static Memory& memory(W& warp) {
    return *static_cast<Memory*>(warp.scratch());
  }

  // Writes elements of every run, one per lane from `first` on. bits(run, lane, x) returns the bits
  // of an element. `x` is what more(i) has read from memory for element i of the chunk.
  template <Warp W, typename More, typename ToBits>
  RINGDIST_DEVICE void write(W& warp, const LosslessChunk& chunk, int64_t index, int first,
                             const More& more, const ToBits& bits) const {
    constexpr int kBatch = 8;  // elements that are read before the first one is processed
    float* const to = out + index * LosslessChunk::kElements;
    const auto element = [&](int run, int lane) {
      return run * LosslessChunk::kRun + first + lane;
    };
    for (int run = 0; run < chunk.runs(); run += kBatch) {
      typename W::template Lanes<Bits> read[kBatch];
      typename W::template Lanes<float> before[kBatch];
      RINGDIST_UNROLL
      for (int i = 0; i < kBatch; ++i)
        warp.each([&](int lane) {
          const int at = element(run + i, lane);
          const bool there = at < chunk.count;
          read[i][lane] = there ? more(at) : Bits{0};
          before[i][lane] = there && accumulate ? to[at] : 0.0f;
        });
      RINGDIST_UNROLL
      for (int i = 0; i < kBatch; ++i)
        warp.each([&](int lane) {
          const int at = element(run + i, lane);
          if (at >= chunk.count) return;
          const float value = Stored::widen(bits(run + i, lane, read[i][lane]));
          to[at] = accumulate ? before[i][lane] + value : value;
        });
    }
  }

  template <int kBytes>
  RINGDIST_DEVICE static Bits load(const uint8_t* from) {
    uint32_t out = 0;
    for (int i = 0; i < kBytes; ++i) out |= uint32_t{from[i]} << (8 * i);
    return static_cast<Bits>(out);
  }

  template <Warp W>
  RINGDIST_DEVICE bool read_raw(W& warp, const LosslessChunk& chunk, int64_t index,
                                const uint8_t* from) const {
    constexpr int kBytes = sizeof(Bits);
    for (int first = 0; first < LosslessChunk::kRun; first += kSome)
      write(
          warp, chunk, index, first, [&](int at) { return load<kBytes>(from + at * kBytes); },
          [](int, int, Bits x) { return x; });
    return true;
  }

  template <Warp W>
  RINGDIST_DEVICE void write_some(W& warp, const LosslessChunk& chunk, int64_t index, int first,
                                  const uint8_t* rests) const {
    const uint8_t* const symbols = memory(warp).symbols;
    write(
        warp, chunk, index, first,
        [&](int at) { return load<Stored::kRest>(rests + at * Stored::kRest); },
        [&](int run, int lane, Bits rest) {
          return Stored::join(symbols[run * kStride + lane], rest);
        });
  }

  template <Warp W>
  RINGDIST_DEVICE bool read_packed(W& warp, const LosslessChunk& chunk, int64_t index,
                                   const uint8_t* from, int size) const {
    // The size comes from another rank. Each check precedes the first read of the bytes that it
    // covers.
    if (size < chunk.lengths_at()) return false;
    const int first = from[0];
    const int last = from[1];
    if (first > last || size < chunk.codes_at(first, last)) return false;
    const uint8_t* const rests = from + size - chunk.rest_bytes();
    Memory& here = memory(warp);
    if (first == last) {
      if (size != chunk.packed_bytes(first, last, 0)) return false;
      warp.each([&](int lane) {
        for (int run = 0; run < kRuns; ++run)
          here.symbols[run * kStride + lane] = static_cast<uint8_t>(first);
      });
      warp.sync();
      for (int some = 0; some < LosslessChunk::kRun; some += kSome)
        write_some(warp, chunk, index, some, rests);
      return true;
    }
    typename W::template Lanes<uint32_t> left;  // bits of the lane's run
    warp.each([&](int lane) {
      left[lane] = lane < chunk.runs() ? load16(from + chunk.bits_at(first, last) + 2 * lane) : 0u;
    });
    const auto all = static_cast<int>(warp.sum(left));
    if (size != chunk.packed_bytes(first, last, all)) return false;
    const BySymbol<W> lengths = lengths_of(warp, from + chunk.lengths_at(), first, last);
    if (!is_complete(warp, lengths)) return false;
    set(warp, here.table, lengths);

    typename W::template Lanes<LosslessReader> readers;
    const auto before = sums_before(warp, left);
    warp.each([&](int lane) {
      readers[lane] = LosslessReader(from + chunk.codes_at(first, last), before[lane], from + size);
    });
    for (int some = 0; some < LosslessChunk::kRun; some += kSome) {
      decode(warp, chunk, some, readers, left);
      warp.sync();
      write_some(warp, chunk, index, some, rests);
      warp.sync();
    }
    return warp.ballot(left) == 0;
  }

  template <Warp W>
  RINGDIST_DEVICE static void set(W& warp, LosslessTable& table, const BySymbol<W>& lengths) {
    each_code(
        warp, lengths,
        [&](int symbol, int, uint32_t, int place) {
          table.symbol[place] = static_cast<uint8_t>(symbol);
        },
        [&](int length, uint32_t code, int place) {
          warp.each([&](int lane) {
            if (lane != 0) return;
            table.end[length] = code << (kMaxCodeBits - length);
            table.place[length] = place - static_cast<int>(code);
          });
        });
    warp.sync();
  }

  // Decodes the symbols of each lane's run from `first` on. Subtracts the bits of their codes from
  // `left`.
  template <Warp W>
  RINGDIST_DEVICE static void decode(W& warp, const LosslessChunk& chunk, int first,
                                     typename W::template Lanes<LosslessReader>& readers,
                                     typename W::template Lanes<uint32_t>& left) {
    Memory& here = memory(warp);
    // Ends grow with the length, so the length of a code is 1 plus the number of ends that its next
    // 12 bits have reached. The code is complete, so each value of these bits has a symbol.
    uint32_t end[kMaxCodeBits];
    RINGDIST_UNROLL
    for (int length = 1; length < kMaxCodeBits; ++length) end[length] = here.table.end[length];
    warp.each([&](int lane) {
      if (lane >= chunk.runs()) return;
      LosslessReader reader = readers[lane];
      uint8_t* const to = here.symbols + lane * kStride;
      const int mine = chunk.elements_of(lane) - first;
      for (int i = 0; i < kSome && i < mine; ++i) {
        if (i % 2 == 0) reader.fill(2 * kMaxCodeBits);
        const uint32_t code = reversed(reader.peek()) >> (32 - kMaxCodeBits);
        int length = 1;
        RINGDIST_UNROLL
        for (int shorter = 1; shorter < kMaxCodeBits; ++shorter)
          length += code >= end[shorter] ? 1 : 0;
        const auto own = static_cast<int>(code >> (kMaxCodeBits - length));
        to[i] = here.table.symbol[own + here.table.place[length]];
        reader.drop(static_cast<uint32_t>(length));
        left[lane] -= static_cast<uint32_t>(length);
      }
      readers[lane] = reader;
    });
  }
};

}  // namespace ringdist::gpu
