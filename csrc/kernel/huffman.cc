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

// Returns the code of each symbol, first bit lowest. Codes are numbered in the order of (length,
// symbol).
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

// Maps each possible value of the next kMaxCodeBits bits to its symbol.
using DecodingTable = std::array<Decoded, kTableSize>;

// Makes the table of a complete code. The first bit of a code is the lowest, so its entries are all
// numbers that end in it, 2^length apart.
DecodingTable decoding_table(const CodeLengths& lengths) {
  DecodingTable out;
  const auto first = codes(lengths);
  for (size_t symbol = 0; symbol < lengths.size(); ++symbol)
    if (lengths[symbol] != 0)
      for (size_t at = first[symbol]; at < kTableSize; at += size_t{1} << lengths[symbol])
        out[at] = {static_cast<uint8_t>(symbol), lengths[symbol]};
  return out;
}

// Loads 8 bytes from offset `at`; bytes past the end are 0.
uint64_t load_bits(ConstBytes in, size_t at) {
  uint64_t out = 0;
  if (at + sizeof out <= in.size())
    std::memcpy(&out, in.data() + at, sizeof out);
  else if (at < in.size())
    std::memcpy(&out, in.data() + at, in.size() - at);
  return out;
}

// Decodes as many runs of `each` symbols as `at` has entries. Each entry is the bit offset of a
// run, and is advanced to its end. The runs are interleaved, because the position of a code depends
// on the code before it in its run. Wrong input can move a position past the end, where load_bits()
// returns zeros.
template <size_t kRuns>
void decode_runs(const DecodingTable& table, ConstBytes in, size_t each,
                 std::array<size_t, kRuns>& at, uint8_t* out) {
  constexpr size_t kCodes = 4;  // a load provides at least 57 bits
  const auto take = [&](size_t first, size_t codes) {
    std::array<uint64_t, kRuns> bits;
    for (size_t r = 0; r < kRuns; ++r) bits[r] = load_bits(in, at[r] / 8) >> (at[r] % 8);
    for (size_t i = first; i < first + codes; ++i)
      for (size_t r = 0; r < kRuns; ++r) {
        const Decoded next = table[bits[r] & (kTableSize - 1)];
        bits[r] >>= next.length;
        at[r] += next.length;
        out[r * each + i] = next.symbol;
      }
  };
  size_t i = 0;
  for (; i + kCodes <= each; i += kCodes) take(i, kCodes);
  if (i < each) take(i, each - i);
}

}  // namespace

Symbols count_symbols(std::span<const uint8_t> symbols) {
  // Four tables avoid waiting for the previous increment if one symbol repeats.
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
  std::array<uint32_t, 511> weight;
  std::array<uint16_t, 511> depth;
  for (size_t i = 0; i < n; ++i) weight[i] = leaves[i].count;
  limited_depths(static_cast<int>(n), weight.data(), depth.data());
  for (size_t i = 0; i < n; ++i) out[leaves[i].symbol] = static_cast<uint8_t>(depth[i]);
  return out;
}

size_t coded_bits(const Symbols& counts, const CodeLengths& lengths) {
  size_t bits = 0;
  for (size_t s = 0; s < counts.size(); ++s) bits += size_t{counts[s]} * lengths[s];
  return bits;
}

bool is_complete(const CodeLengths& lengths) {
  size_t used = 0;
  for (uint8_t length : lengths) {
    if (length > kMaxCodeBits) return false;
    if (length != 0) used += kTableSize >> length;
  }
  return used == kTableSize;
}

HuffmanWriter::HuffmanWriter(const CodeLengths& lengths, std::byte* out)
    : lengths_(lengths), codes_(codes(lengths)), out_(out) {}

// Works on copies of the members, because stores to `out` may alias them. Four codes of at most 12
// bits and the 7 bits that are held fit into 64 bits, so four are put per store.
size_t HuffmanWriter::put(std::span<const uint8_t> symbols) {
  std::byte* out = out_;
  uint64_t bits = bits_;
  unsigned held = held_;
  const auto put_one = [&](uint8_t symbol) {
    bits |= uint64_t{codes_[symbol]} << held;
    held += lengths_[symbol];
  };
  const auto store = [&] {
    std::memcpy(out, &bits, sizeof bits);
    out += held / 8;
    bits >>= held / 8 * 8;
    held %= 8;
  };
  size_t i = 0;
  for (; i + 4 <= symbols.size(); i += 4) {
    for (size_t j = 0; j < 4; ++j) put_one(symbols[i + j]);
    store();
  }
  for (; i < symbols.size(); ++i) {
    put_one(symbols[i]);
    store();
  }
  const size_t taken = 8 * static_cast<size_t>(out - out_) + held - held_;
  out_ = out;
  bits_ = bits;
  held_ = held;
  return taken;
}

void HuffmanWriter::finish() {
  if (held_ != 0) *out_ = static_cast<std::byte>(bits_);
}

bool huffman_decode(ConstBytes in, const CodeLengths& lengths, std::span<const uint16_t> bits,
                    size_t each, std::span<uint8_t> out) {
  constexpr size_t kTogether = 4;
  const auto table = decoding_table(lengths);
  size_t begin = 0;
  bool good = true;
  const auto decode_some = [&]<size_t kRuns>(size_t first, size_t symbols) {
    std::array<size_t, kRuns> at, end;
    for (size_t r = 0; r < kRuns; ++r) {
      at[r] = begin;
      end[r] = begin += bits[first + r];
    }
    decode_runs(table, in, symbols, at, out.data() + first * each);
    good = good && at == end;
  };
  const size_t whole = out.size() / each;
  size_t run = 0;
  for (; run + kTogether <= whole; run += kTogether)
    decode_some.template operator()<kTogether>(run, each);
  for (; run < whole; ++run) decode_some.template operator()<1>(run, each);
  if (whole * each < out.size()) decode_some.template operator()<1>(run, out.size() % each);
  return good;
}

}  // namespace ringdist
