// Blocks of the codecs topk and randomk between the registers of a warp and bytes. Byte-identical
// to codec/topk.cc and codec/randomk.cc. Coders (cuda/kernel/codec_bodies.h).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/kernel/block_values.h"
#include "cuda/kernel/seed.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/counter_rng.h"
#include "kernel/half.h"
#include "kernel/topk_pair.h"

namespace ringdist::gpu {

// Common part of both Coders.
struct SparseBlock {
  static constexpr int kCount = 1024;
  static constexpr int kParts = kCount / kWarp;
  static constexpr int kEncodes = 1;
  static constexpr int kDecodes = 1;
  static constexpr bool kTogether = false;
  static constexpr bool kSparse = true;
  static constexpr bool kEncodesWide = false;
  static constexpr bool kDecodesWide = false;

  int k = 1;  // elements sent per kCount

  template <Warp W>
  using Fetched = const uint8_t*;  // a block is read directly from its memory

  template <Warp W>
  RINGDIST_DEVICE const uint8_t* fetch(W&, const uint8_t* in, int) const {
    return in;
  }

  // Returns the number of elements that are sent from a block of `count` elements.
  constexpr int share(int count) const { return (k * count + kCount - 1) / kCount; }

  // Returns the position of a lane's element among all that are sent. `chosen` has the lanes of its
  // part that are sent, and `before` elements are sent from earlier parts.
  RINGDIST_DEVICE static int place(uint32_t chosen, int lane, int before) {
    return before + std::popcount(chosen & lanes_before(lane));
  }
  RINGDIST_DEVICE static bool is_in(uint32_t lanes, int lane) { return (lanes >> lane & 1) != 0; }

  // Return the value of an element that was not sent, and of one that was sent. The CPU adds to the
  // sum only what was sent. Adding -0 changes no sum, and a new block begins with +0.
  RINGDIST_DEVICE static float absent(bool adding) { return adding ? -0.0f : 0.0f; }
  RINGDIST_DEVICE static float present(float value, bool adding) {
    return adding ? value : 0.0f + value;
  }
};

// Coder of `randomk`, which is specified in codec/randomk.spec.md.
struct RandomkCoder : SparseBlock {
  static constexpr int kScratch = 0;

  constexpr int64_t bytes(int count) const { return int64_t{kValue} * share(count); }

  template <Warp W>
  RINGDIST_DEVICE void encode(W& warp, Values<W, kParts>& x, int count, Seed seed, uint64_t at,
                              uint8_t* out) const {
    const bool poisoned = largest_magnitude(warp, x) >= kInfinity;
    const auto chosen = draw(warp, seed, at, count);
    int sent = 0;
    for (int part = 0; part < kParts; ++part) {
      const uint32_t lanes = warp.of(chosen, part);
      warp.each([&](int lane) {
        float& own = x.part[part][lane];
        const uint16_t value = poisoned ? kBFloatNaN : finite_bfloat(own);
        if (is_in(lanes, lane)) store16(value, out + kValue * place(lanes, lane, sent));
        own = poisoned             ? std::numeric_limits<float>::quiet_NaN()
              : is_in(lanes, lane) ? bfloat_to_float(value)
                                   : 0;
      });
      sent += std::popcount(lanes);
    }
  }

  template <Warp W>
  RINGDIST_DEVICE bool decode(W& warp, const uint8_t* in, int count, Seed seed, uint64_t at,
                              bool adding, Values<W, kParts>& x) const {
    const auto chosen = draw(warp, seed, at, count);
    typename W::template Lanes<uint32_t> poisons;
    warp.each([&](int lane) { poisons[lane] = 0; });
    int sent = 0;
    for (int part = 0; part < kParts; ++part) {
      const uint32_t lanes = warp.of(chosen, part);
      warp.each([&](int lane) {
        float value = absent(adding);
        if (is_in(lanes, lane)) {
          const float given = bfloat_to_float(load16(in + kValue * place(lanes, lane, sent)));
          if (!finite(given)) poisons[lane] = 1;
          value = present(given, adding);
        }
        x.part[part][lane] = value;
      });
      sent += std::popcount(lanes);
    }
    if (warp.ballot(poisons) != 0) fill(warp, x, std::numeric_limits<float>::quiet_NaN());
    return true;
  }

 private:
  static constexpr int kValue = 2;  // bytes of a value

  // Draws the elements to send, by Floyd's sampling. Each draw depends on those before, so the warp
  // makes them one by one. Lane p gets a bit for each element of part p.
  template <Warp W>
  RINGDIST_DEVICE auto draw(W& warp, Seed seed, uint64_t at, int count) const ->
      typename W::template Lanes<uint32_t> {
    const uint64_t key = random_at(seed.shared, at / kCount);
    typename W::template Lanes<uint32_t> chosen;
    warp.each([&](int lane) { chosen[lane] = 0; });
    for (int last = count - share(count); last < count; ++last) {
      const auto all = static_cast<uint64_t>(last);
      const auto drawn = static_cast<int>((random_at(key, all) >> 32) * (all + 1) >> 32);
      const bool taken_before = is_in(warp.of(chosen, drawn / kWarp), drawn % kWarp);
      const int taken = taken_before ? last : drawn;
      warp.each([&](int lane) {
        if (lane == taken / kWarp) chosen[lane] |= 1u << (taken % kWarp);
      });
    }
    return chosen;
  }
};

// Coder of `topk`, which is specified in codec/topk.spec.md.
struct TopkCoder : SparseBlock {
  static constexpr int kScratch = kCount * sizeof(float);

  constexpr int64_t bytes(int count) const { return int64_t{kEntry} * share(count); }

  template <Warp W>
  RINGDIST_DEVICE void encode(W& warp, Values<W, kParts>& x, int count, Seed, uint64_t,
                              uint8_t* out) const {
    if (largest_magnitude(warp, x) >= kInfinity) return poison(warp, x, count, out);
    const uint32_t bound = least_of_largest(warp, x, count);
    int sent = 0;
    int ties = share(count) - static_cast<int>(at_least(warp, x, count, bound + 1));
    for (int part = 0; part < kParts; ++part) {
      typename W::template Lanes<uint32_t> above, equal;
      warp.each([&](int lane) {
        const bool there = part * kWarp + lane < count;
        const uint32_t magnitude = magnitude_bits(x.part[part][lane]);
        above[lane] = there && magnitude > bound ? 1 : 0;
        equal[lane] = there && magnitude == bound ? 1 : 0;
      });
      const uint32_t equals = warp.ballot(equal);
      const uint32_t first = first_of(equals, ties);
      const uint32_t chosen = warp.ballot(above) | first;
      warp.each([&](int lane) {
        float& own = x.part[part][lane];
        if (!is_in(chosen, lane)) {
          own = 0;
          return;
        }
        const Entry entry = Entry::of(static_cast<uint16_t>(part * kWarp + lane), own);
        store_entry(entry, out + kEntry * place(chosen, lane, sent));
        own = entry.decoded();
      });
      sent += std::popcount(chosen);
      ties -= std::popcount(first);
    }
  }

  template <Warp W>
  RINGDIST_DEVICE bool decode(W& warp, const uint8_t* in, int count, Seed, uint64_t, bool adding,
                              Values<W, kParts>& x) const {
    auto* values = static_cast<float*>(warp.scratch());
    warp.sync();  // after the previous block
    each_element<kParts>(warp, kCount, [&](int, int, int i) { values[i] = absent(adding); });
    warp.sync();
    const int entries = share(count);
    for (int begin = 0; begin < entries; begin += kWarp) {
      // All entries of a step are checked before one is stored, so no index is beyond the block.
      // The first of them that is poison or out of order decides.
      const uint32_t poisons = which(
          warp, begin, entries, [&](int j) { return load_entry(in + kEntry * j).is_poison(); });
      const uint32_t faults =
          which(warp, begin, entries, [&](int j) { return is_out_of_order(in, j, count); });
      if ((poisons | faults) != 0) {
        const int first = lowest_bit(poisons | faults);
        if (!is_in(poisons, first)) return false;
        fill(warp, x, std::numeric_limits<float>::quiet_NaN());
        return true;
      }
      warp.each([&](int lane) {
        if (begin + lane >= entries) return;
        const Entry entry = load_entry(in + kEntry * (begin + lane));
        values[entry.index()] = present(entry.decoded(), adding);
      });
    }
    warp.sync();
    each_element<kParts>(warp, count,
                         [&](int part, int lane, int i) { x.part[part][lane] = values[i]; });
    return true;
  }

 private:
  using Entry = TopkPair;
  static constexpr int kEntry = 4;  // bytes of an entry

  RINGDIST_DEVICE static void store_entry(Entry entry, uint8_t* out) {
    store16(entry.field, out);
    store16(entry.value, out + sizeof entry.field);
  }
  RINGDIST_DEVICE static Entry load_entry(const uint8_t* in) {
    return {load16(in), load16(in + sizeof(uint16_t))};
  }
  RINGDIST_DEVICE static bool is_out_of_order(const uint8_t* in, int j, int count) {
    const int element = load_entry(in + kEntry * j).index();
    const int before = j == 0 ? -1 : load_entry(in + kEntry * (j - 1)).index();
    return element <= before || element >= count;
  }

  // Returns the lanes for which such(begin + lane) is true, with begin + lane below `end`.
  template <Warp W, typename Such>
  RINGDIST_DEVICE static uint32_t which(W& warp, int begin, int end, const Such& such) {
    typename W::template Lanes<uint32_t> is_such;
    warp.each([&](int lane) { is_such[lane] = begin + lane < end && such(begin + lane) ? 1 : 0; });
    return warp.ballot(is_such);
  }

  // Returns the lowest `count` of the bits that are set.
  RINGDIST_DEVICE static uint32_t first_of(uint32_t bits, int count) {
    uint32_t out = 0;
    for (; bits != 0 && count > 0; --count) {
      out |= bits & (0 - bits);
      bits &= bits - 1;
    }
    return out;
  }

  // Returns the number of elements with a magnitude of at least `bound`.
  template <Warp W>
  RINGDIST_DEVICE static uint32_t at_least(W& warp, const Values<W, kParts>& x, int count,
                                           uint32_t bound) {
    typename W::template Lanes<uint32_t> own;
    warp.each([&](int lane) { own[lane] = 0; });
    each_element<kParts>(warp, count, [&](int part, int lane, int) {
      if (magnitude_bits(x.part[part][lane]) >= bound) ++own[lane];
    });
    return warp.sum(own);
  }

  // Returns the largest magnitude that at least share() elements reach. Determines it bit by bit,
  // which takes 31 counts and neither sorts nor needs memory.
  template <Warp W>
  RINGDIST_DEVICE uint32_t least_of_largest(W& warp, const Values<W, kParts>& x, int count) const {
    const auto wanted = static_cast<uint32_t>(share(count));
    uint32_t bound = 0;
    for (uint32_t bit = 1u << 30; bit != 0; bit >>= 1)
      if (at_least(warp, x, count, bound | bit) >= wanted) bound |= bit;
    return bound;
  }

  template <Warp W>
  RINGDIST_DEVICE void poison(W& warp, Values<W, kParts>& x, int count, uint8_t* out) const {
    each_element<kParts>(warp, share(count),
                         [&](int, int, int i) { store_entry(Entry::poison(), out + kEntry * i); });
    fill(warp, x, std::numeric_limits<float>::quiet_NaN());
  }
};

}  // namespace ringdist::gpu
