// First of the three launches that encode `lossless`. A warp counts the symbols of a chunk, and
// computes their code and the size of the chunk. The second launch is below, with the offsets of
// chunks.
#pragma once

#include <cstdint>

#include "cuda/kernel/block_at.h"
#include "cuda/kernel/block_values.h"
#include "cuda/kernel/encode_input.h"
#include "cuda/kernel/lossless_code.h"
#include "cuda/kernel/lossless_type.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Plans all chunks of a call.
template <typename Stored>
struct LosslessPlanning {
  EncodeInput given;
  int64_t count;
  LosslessSymbols* symbols;  // by chunk; not used for a chunk that is stored raw
  uint8_t* out;              // the sizes are written here

  constexpr int64_t batches() const { return lossless_chunks(count); }

 private:
  // Lanes count in several tables, so that they seldom wait for each other. Equal symbols are
  // frequent.
  static constexpr int kTables = 4;
  // padded so that tables use different banks
  static constexpr int kTable = kSymbols + kWarp / kTables;

  struct Tree {
    uint32_t weight[2 * kSymbols];
    uint16_t depth[2 * kSymbols];
    uint32_t key[kSymbols];  // by leaf; orders leaves by (count, symbol)
    uint8_t symbol[kSymbols];
    uint8_t length[kSymbols];  // by symbol
  };
  union Memory {
    uint32_t tables[kTables * kTable];
    Tree tree;
  };

 public:
  static constexpr int kScratch = (sizeof(Memory) + 15) / 16 * 16;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    auto& memory = *static_cast<Memory*>(warp.scratch());
    const auto chunk = lossless_chunk<Stored>(index, count);
    const BySymbol<W> counts = count_symbols(warp, memory.tables, chunk, index);
    Tree& tree = memory.tree;
    const int leaves = sort(warp, tree, counts);
    warp.each([&](int lane) {
      if (lane == 0 && leaves > 1) limited_depths(leaves, tree.weight, tree.depth);
    });
    const uint32_t bits = lengths(warp, tree, counts, leaves);
    const Ends ends = ends_of(warp, counts);
    const int first = ends.first;
    const int last = ends.last;
    const int packed = chunk.packed_bytes(first, last, static_cast<int>(bits));
    const int size = chunk.pays(packed) ? packed : chunk.raw_bytes();
    LosslessSymbols& to = symbols[index];
    warp.each([&](int lane) {
      if (lane == 0) {
        store16(static_cast<uint16_t>(size), out + kLosslessLength + index * kLosslessSize);
        to.first = static_cast<uint8_t>(first);
        to.last = static_cast<uint8_t>(last);
      }
      for (int low = first + 2 * lane; low <= last; low += 2 * kWarp) {
        const int high = low < last ? tree.length[low + 1] : 0;
        to.lengths[(low - first) / 2] = static_cast<uint8_t>(tree.length[low] | high << 4);
      }
    });
  }

 private:
  template <Warp W>
  RINGDIST_DEVICE BySymbol<W> count_symbols(W& warp, uint32_t* tables, const LosslessChunk& chunk,
                                            int64_t index) const {
    warp.sync();  // after the previous chunk
    warp.each([&](int lane) {
      for (int i = lane; i < kTables * kTable; i += kWarp) tables[i] = 0;
    });
    warp.sync();
    const bool applies = given.residual.applies();
    Values<W, kRunParts> next;
    given.read(warp, lossless_run(chunk, index, 0), applies, next);
    for (int run = 0; run < chunk.runs(); ++run) {
      const Values<W, kRunParts> x = next;
      if (run + 1 < chunk.runs())
        given.read(warp, lossless_run(chunk, index, run + 1), applies, next);
      each_element<kRunParts>(warp, chunk.elements_of(run), [&](int part, int lane, int) {
        // narrow_sum() differs for NaNs only, and all of them have the same symbol.
        const uint8_t symbol = Stored::symbol(Stored::narrow(x.part[part][lane]));
        warp.add(tables + lane % kTables * kTable + symbol, 1);
      });
    }
    warp.sync();
    BySymbol<W> counts;
    each_symbol(warp, [&](int symbol, int part, int lane) {
      uint32_t sum = 0;
      for (int table = 0; table < kTables; ++table) sum += tables[table * kTable + symbol];
      counts.part[part][lane] = sum;
    });
    warp.sync();  // the memory will be reused
    return counts;
  }

  // Sorts the symbols that occur, by count. Writes their weights and symbols, and returns their
  // number. A lane counts the keys below its own, which gives the place, because keys are distinct.
  template <Warp W>
  RINGDIST_DEVICE static int sort(W& warp, Tree& tree, const BySymbol<W>& counts) {
    int leaves = 0;
    for (int part = 0; part < BySymbol<W>::kParts; ++part) {
      const uint32_t occur = warp.ballot(counts.part[part]);
      warp.each([&](int lane) {
        const uint32_t n = counts.part[part][lane];
        const int at = leaves + std::popcount(occur & lanes_before(lane));
        if (n != 0) tree.key[at] = n * kSymbols + static_cast<uint32_t>(part * kWarp + lane);
      });
      leaves += std::popcount(occur);
    }
    warp.sync();
    warp.each([&](int lane) {
      for (int leaf = lane; leaf < leaves; leaf += kWarp) {
        const uint32_t own = tree.key[leaf];
        int place = 0;
        for (int other = 0; other < leaves; ++other) place += tree.key[other] < own ? 1 : 0;
        tree.weight[place] = own / kSymbols;
        tree.symbol[place] = static_cast<uint8_t>(own % kSymbols);
      }
    });
    warp.sync();
    return leaves;
  }

  // Sets the lengths of all symbols. Returns the bits of all codes.
  template <Warp W>
  RINGDIST_DEVICE static uint32_t lengths(W& warp, Tree& tree, const BySymbol<W>& counts,
                                          int leaves) {
    each_symbol(warp, [&](int symbol, int, int) { tree.length[symbol] = 0; });
    warp.sync();
    warp.each([&](int lane) {
      for (int leaf = lane; leaves > 1 && leaf < leaves; leaf += kWarp)
        tree.length[tree.symbol[leaf]] = static_cast<uint8_t>(tree.depth[leaf]);
    });
    warp.sync();
    typename W::template Lanes<uint32_t> bits;
    warp.each([&](int lane) { bits[lane] = 0; });
    each_symbol(warp, [&](int symbol, int part, int lane) {
      bits[lane] += counts.part[part][lane] * tree.length[symbol];
    });
    return warp.sum(bits);
  }

  struct Ends {
    int first, last;
  };
  template <Warp W>
  RINGDIST_DEVICE static Ends ends_of(W& warp, const BySymbol<W>& counts) {
    typename W::template Lanes<uint32_t> from_top, from_bottom;
    warp.each([&](int lane) { from_top[lane] = from_bottom[lane] = 0; });
    each_symbol(warp, [&](int symbol, int part, int lane) {
      if (counts.part[part][lane] == 0) return;
      const auto s = static_cast<uint32_t>(symbol);
      from_bottom[lane] = s;  // the last one of a lane is its highest
      if (from_top[lane] < kSymbols - 1 - s) from_top[lane] = kSymbols - 1 - s;
    });
    return {kSymbols - 1 - static_cast<int>(warp.maximum(from_top)),
            static_cast<int>(warp.maximum(from_bottom))};
  }
};

// Computes where the chunks begin, from the sizes in front of them. One warp does it, in a launch
// between those with a warp per chunk.
template <typename Stored>
struct LosslessOffsets {
  int64_t count;
  uint64_t* begin;  // offset of each chunk, in bytes from the length field

  static constexpr int kScratch = 0;
  constexpr int64_t batches() const { return 1; }

  struct Found {
    uint64_t end;
    bool good;  // no chunk is larger than its elements
  };
  // Writes `begin` of all chunks. A lane adds kEach sizes by itself, and a scan adds up the lanes.
  template <Warp W>
  RINGDIST_DEVICE Found find(W& warp, const uint8_t* bytes) const {
    constexpr int kEach = 8;  // sizes that a lane adds by itself
    const int64_t chunks = lossless_chunks(count);
    const uint8_t* const sizes = bytes + kLosslessLength;
    auto at = static_cast<uint64_t>(lossless_head(count));
    bool good = true;
    for (int64_t index = 0; index < chunks; index += kEach * kWarp) {
      typename W::template Lanes<uint32_t> size[kEach], sum, wrong;
      warp.each([&](int lane) {
        sum[lane] = wrong[lane] = 0;
        RINGDIST_UNROLL
        for (int i = 0; i < kEach; ++i) {
          const int64_t mine = index + lane * kEach + i;
          size[i][lane] = mine < chunks ? load16(sizes + mine * kLosslessSize) : 0;
          sum[lane] += size[i][lane];
          if (mine >= chunks) continue;
          const auto most = static_cast<uint32_t>(lossless_chunk<Stored>(mine, count).raw_bytes());
          if (size[i][lane] > most) wrong[lane] = 1;
        }
      });
      const auto before = sums_before(warp, sum);
      warp.each([&](int lane) {
        uint64_t next = at + before[lane];
        RINGDIST_UNROLL
        for (int i = 0; i < kEach; ++i) {
          const int64_t mine = index + lane * kEach + i;
          if (mine < chunks) begin[mine] = next;
          next += size[i][lane];
        }
      });
      at += warp.sum(sum);
      good = good && warp.ballot(wrong) == 0;
    }
    return {at, good};
  }
};

// Body of the encoder. Also writes the length.
template <typename Stored>
struct LosslessLength : LosslessOffsets<Stored> {
  uint8_t* out;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t) const {
    const auto length =
        static_cast<uint32_t>(this->find(warp, out).end - uint64_t{kLosslessLength});
    warp.each([&](int lane) {
      if (lane < kLosslessLength) out[lane] = static_cast<uint8_t>(length >> (8 * lane));
    });
  }
};

// Body of the decoder. Writes one more entry of `begin`: the end of all chunks, or 0 if sizes and
// length are inconsistent.
template <typename Stored>
struct LosslessStarts : LosslessOffsets<Stored> {
  const uint8_t* in;
  int* malformed;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t) const {
    const auto found = this->find(warp, in);
    const uint64_t length = load16(in) | uint64_t{load16(in + 2)} << 16;
    const bool good = found.good && found.end == uint64_t{kLosslessLength} + length;
    warp.each([&](int lane) {
      if (lane != 0) return;
      this->begin[lossless_chunks(this->count)] = good ? found.end : 0;
      if (!good) *malformed = 1;
    });
  }
};

}  // namespace ringdist::gpu
