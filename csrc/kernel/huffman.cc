#include "kernel/huffman.h"

#include <algorithm>
#include <cstring>

namespace ringdist {
namespace {

constexpr size_t kTableSize = size_t{1} << kMaxCodeBits;

struct Leaf {
  uint32_t count;
  uint8_t symbol;
};

// Depth of each leaf of a Huffman tree over leaves in ascending order of count. Two queues, of
// leaves and of inner nodes, stay sorted by themselves (J. van Leeuwen, 1976).
std::array<uint8_t, 256> depths(std::span<const Leaf> leaves) {
  std::array<uint32_t, 512> weight{};
  std::array<uint16_t, 512> parent{};
  const size_t n = leaves.size();
  for (size_t i = 0; i < n; ++i) weight[i] = leaves[i].count;
  size_t leaf = 0;
  size_t inner = n;
  for (size_t node = n; node < 2 * n - 1; ++node) {
    for (int child = 0; child < 2; ++child) {
      const bool from_leaves = leaf < n && (inner == node || weight[leaf] <= weight[inner]);
      const size_t taken = from_leaves ? leaf++ : inner++;
      weight[node] += weight[taken];
      parent[taken] = static_cast<uint16_t>(node);
    }
  }
  std::array<uint16_t, 512> depth{};
  std::array<uint8_t, 256> out{};
  for (size_t node = 2 * n - 2; node-- > 0;) {
    depth[node] = static_cast<uint16_t>(depth[parent[node]] + 1);
    if (node < n) out[node] = static_cast<uint8_t>(std::min<int>(depth[node], 255));
  }
  return out;
}

// The codes of each symbol, first bit lowest, in the order of (length, symbol).
std::array<uint16_t, 256> codes(const CodeLengths& lengths) {
  std::array<uint16_t, 256> out{};
  uint32_t next = 0;
  for (int length = 1; length <= kMaxCodeBits; ++length, next <<= 1) {
    for (size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      if (lengths[symbol] != length) continue;
      uint32_t reversed = 0;
      for (int i = 0; i < length; ++i) reversed |= (next >> i & 1) << (length - 1 - i);
      out[symbol] = static_cast<uint16_t>(reversed);
      ++next;
    }
  }
  return out;
}

struct Decoded {
  uint8_t symbol;
  uint8_t length;
};

// The symbol for each possible next kMaxCodeBits bits.
std::array<Decoded, kTableSize> decoding_table(const CodeLengths& lengths) {
  std::array<Decoded, kTableSize> out;
  const auto first = codes(lengths);
  for (size_t symbol = 0; symbol < lengths.size(); ++symbol)
    if (lengths[symbol] != 0)
      for (size_t at = first[symbol]; at < kTableSize; at += size_t{1} << lengths[symbol])
        out[at] = {static_cast<uint8_t>(symbol), lengths[symbol]};
  return out;
}

uint64_t load_bits(ConstBytes in, size_t at) {
  uint64_t out = 0;
  if (at + sizeof out <= in.size())
    std::memcpy(&out, in.data() + at, sizeof out);
  else if (at < in.size())
    std::memcpy(&out, in.data() + at, in.size() - at);
  return out;
}

}  // namespace

Symbols count_symbols(std::span<const uint8_t> symbols) {
  // Four tables: runs of one symbol need not wait for the count before.
  std::array<Symbols, 4> counts{};
  size_t i = 0;
  for (; i + counts.size() <= symbols.size(); i += counts.size())
    for (size_t j = 0; j < counts.size(); ++j) ++counts[j][symbols[i + j]];
  for (; i < symbols.size(); ++i) ++counts[0][symbols[i]];
  for (size_t j = 1; j < counts.size(); ++j)
    for (size_t s = 0; s < counts[0].size(); ++s) counts[0][s] += counts[j][s];
  return counts[0];
}

CodeLengths code_lengths(const Symbols& counts) {
  std::array<Leaf, 256> leaves;
  size_t n = 0;
  for (size_t symbol = 0; symbol < counts.size(); ++symbol)
    if (counts[symbol] != 0) leaves[n++] = {counts[symbol], static_cast<uint8_t>(symbol)};
  CodeLengths out{};
  if (n < 2) return out;
  std::sort(leaves.begin(), leaves.begin() + static_cast<ptrdiff_t>(n), [](Leaf a, Leaf b) {
    return a.count != b.count ? a.count < b.count : a.symbol < b.symbol;
  });
  auto depth = depths(std::span(leaves).first(n));
  // Flatter counts give a flatter tree; equal ones one of 8 levels.
  while (depth[0] > kMaxCodeBits) {
    for (Leaf& leaf : std::span(leaves).first(n)) leaf.count = (leaf.count + 1) / 2;
    depth = depths(std::span(leaves).first(n));
  }
  for (size_t i = 0; i < n; ++i) out[leaves[i].symbol] = depth[i];
  return out;
}

size_t coded_bytes(const Symbols& counts, const CodeLengths& lengths) {
  size_t bits = 0;
  for (size_t s = 0; s < counts.size(); ++s) bits += size_t{counts[s]} * lengths[s];
  return (bits + 7) / 8;
}

bool is_complete(const CodeLengths& lengths) {
  size_t used = 0;
  for (uint8_t length : lengths) {
    if (length > kMaxCodeBits) return false;
    if (length != 0) used += kTableSize >> length;
  }
  return used == kTableSize;
}

void huffman_encode(std::span<const uint8_t> symbols, const CodeLengths& lengths, std::byte* out) {
  const auto code = codes(lengths);
  uint64_t bits = 0;
  unsigned held = 0;  // below 8 after each store
  const auto put = [&](uint8_t symbol) {
    bits |= uint64_t{code[symbol]} << held;
    held += lengths[symbol];
  };
  const auto store = [&] {
    std::memcpy(out, &bits, sizeof bits);
    out += held / 8;
    bits >>= held / 8 * 8;
    held %= 8;
  };
  size_t i = 0;
  for (; i + 4 <= symbols.size(); i += 4) {
    for (size_t j = 0; j < 4; ++j) put(symbols[i + j]);
    store();
  }
  for (; i < symbols.size(); ++i) {
    put(symbols[i]);
    store();
  }
  if (held != 0) *out = static_cast<std::byte>(bits);
}

bool huffman_decode(ConstBytes in, const CodeLengths& lengths, std::span<uint8_t> out) {
  const auto table = decoding_table(lengths);
  size_t at = 0;  // bits
  size_t i = 0;
  const auto take = [&](uint64_t& bits, unsigned& used) {
    const Decoded next = table[bits & (kTableSize - 1)];
    bits >>= next.length;
    used += next.length;
    out[i++] = next.symbol;
  };
  while (i < out.size()) {
    // 57 bits are at hand: four codes.
    uint64_t bits = load_bits(in, at / 8) >> (at % 8);
    unsigned used = 0;
    const size_t codes = std::min<size_t>(4, out.size() - i);
    if (codes == 4)
      for (int j = 0; j < 4; ++j) take(bits, used);
    else
      for (size_t j = 0; j < codes; ++j) take(bits, used);
    at += used;
  }
  return at <= 8 * in.size();
}

}  // namespace ringdist
