// The last of three launches that encode `lossless`: a warp writes a chunk, and what is owed after
// it.
#pragma once

#include <cstdint>

#include "cuda/kernel/encode_input.h"
#include "cuda/kernel/lossless_bits.h"
#include "cuda/kernel/lossless_code.h"
#include "cuda/kernel/lossless_type.h"
#include "cuda/kernel/staged_bytes.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

template <typename Stored>
struct LosslessEncoding {
  EncodeInput given;
  int64_t count;
  const LosslessSymbols* symbols;  // as planned
  const uint64_t* begin;           // of each chunk in `out`
  uint8_t* out;

 private:
  using Bits = typename Stored::Bits;

  struct Memory {
    LosslessCodes codes;
    alignas(8) uint8_t symbols[LosslessChunk::kRun];  // of a run
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
    warp.sync();  // after another chunk's
    const int size = load16(out + kLosslessLength + index * kLosslessSize);
    if (size == chunk.raw_bytes()) return write_raw(warp, chunk, index, to);
    write_packed(warp, chunk, index, to);
  }

 private:
  template <Warp W>
  RINGDIST_DEVICE static Memory& memory(W& warp) {
    return *static_cast<Memory*>(warp.scratch());
  }

  // body(run, stored), the bits of each run's elements, when what they lose is kept.
  template <Warp W, typename Body>
  RINGDIST_DEVICE void each_run(W& warp, const LosslessChunk& chunk, int64_t index,
                                const Body& body) const {
    const bool applies = given.residual.applies();
    Values<W, kRunParts> next;
    given.read(warp, lossless_run(chunk, index, 0), applies, next);
    for (int run = 0; run < chunk.runs(); ++run) {
      const Values<W, kRunParts> x = next;
      // Far away: what is read next comes while this is worked on.
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
