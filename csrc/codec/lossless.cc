// Codec `lossless`: values as the op's dtype stores them, their exponents Huffman-coded.
// lossless.spec.md has the bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "codec/block_codec.h"
#include "codec/codec.h"
#include "kernel/cast.h"
#include "kernel/exponent.h"
#include "kernel/huffman.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 10;
constexpr size_t kChunk = 8192;  // elements that share a code
constexpr size_t kLengthBytes = sizeof(uint32_t);
constexpr size_t kSlack = 8;  // bytes that huffman_encode may overwrite
constexpr size_t kMaxElement = sizeof(float);

enum class Kind : uint8_t { kRaw = 0, kPacked = 1 };

// What a packed chunk begins with: the lowest and the highest symbol that occur, and the bytes that
// the codes take. The lengths of the codes follow, two in a byte.
struct PackedHeader {
  uint8_t kind = static_cast<uint8_t>(Kind::kPacked);
  uint8_t first = 0;
  uint8_t last = 0;
  uint8_t reserved = 0;
  uint32_t coded = 0;

  size_t lengths() const { return (static_cast<size_t>(last - first) + 2) / 2; }
};
static_assert(sizeof(PackedHeader) == 8);

Error damaged(const std::string& what) {
  return Error(ErrorKind::kProtocol, "codec lossless: " + what);
}

// Returns the bytes written, or 0 if they would not be fewer than the elements'.
size_t pack(DType dtype, ConstBytes elements, size_t count, std::byte* out) {
  std::array<uint8_t, kChunk> symbols;
  std::array<std::byte, kChunk*(kMaxElement - 1)> rest;
  const size_t rest_size = count * (dtype_size(dtype) - 1);
  const std::span<uint8_t> used = std::span(symbols).first(count);
  split_exponents(dtype, elements, used, rest);
  const Symbols counts = count_symbols(used);
  const CodeLengths lengths = code_lengths(counts);
  PackedHeader header;
  const auto occurs = [](uint32_t n) { return n != 0; };
  header.first =
      static_cast<uint8_t>(std::find_if(counts.begin(), counts.end(), occurs) - counts.begin());
  header.last = static_cast<uint8_t>(counts.rend() -
                                     std::find_if(counts.rbegin(), counts.rend(), occurs) - 1);
  header.coded = static_cast<uint32_t>(coded_bytes(counts, lengths));
  const size_t before = sizeof header + header.lengths();
  const size_t size = before + header.coded + rest_size;
  // The slack lies within what a raw chunk would take.
  if (size + kSlack > elements.size()) return 0;
  std::memcpy(out, &header, sizeof header);
  for (size_t i = 0; i < header.lengths(); ++i) {
    const size_t low = header.first + 2 * i;
    const unsigned high = low + 1 <= header.last ? lengths[low + 1] : 0u;
    out[sizeof header + i] = static_cast<std::byte>(lengths[low] | high << 4);
  }
  huffman_encode(used, lengths, out + before);
  std::memcpy(out + before + header.coded, rest.data(), rest_size);
  return size;
}

size_t encode_chunk(DType dtype, ConstBytes elements, size_t count, std::byte* out) {
  if (const size_t size = pack(dtype, elements, count, out)) return size;
  *out = static_cast<std::byte>(Kind::kRaw);
  std::memcpy(out + 1, elements.data(), elements.size());
  return 1 + elements.size();
}

Result<size_t> unpack(ConstBytes in, DType dtype, Bytes elements, size_t count) {
  PackedHeader header;
  if (in.size() < sizeof header) return damaged("a chunk's header is cut off");
  std::memcpy(&header, in.data(), sizeof header);
  if (header.first > header.last || header.reserved != 0)
    return damaged("a chunk's header makes no sense");
  const size_t before = sizeof header + header.lengths();
  const size_t rest_size = count * (dtype_size(dtype) - 1);
  const size_t size = before + size_t{header.coded} + rest_size;
  if (in.size() < size) return damaged("a chunk is cut off");
  CodeLengths lengths{};
  for (size_t symbol = header.first; symbol <= header.last; ++symbol) {
    const size_t i = symbol - header.first;
    const auto pair = static_cast<unsigned>(in[sizeof header + i / 2]);
    lengths[symbol] = static_cast<uint8_t>(i % 2 == 0 ? pair & 0xf : pair >> 4);
  }
  const bool one = header.first == header.last;
  if (!one && !is_complete(lengths)) return damaged("a chunk's code is not complete");
  std::array<uint8_t, kChunk> symbols;
  const std::span<uint8_t> used = std::span(symbols).first(count);
  if (one)
    std::fill(used.begin(), used.end(), header.first);
  else if (!huffman_decode(in.subspan(before, header.coded), lengths, used))
    return damaged("a chunk has too few bits");
  join_exponents(dtype, used, in.subspan(before + header.coded, rest_size), elements);
  return size;
}

Result<size_t> decode_chunk(ConstBytes in, DType dtype, Bytes elements, size_t count) {
  if (in.empty()) return damaged("a chunk is missing");
  const auto kind = static_cast<Kind>(in[0]);
  if (kind == Kind::kPacked) return unpack(in, dtype, elements, count);
  if (kind != Kind::kRaw)
    return damaged("a chunk of kind " + std::to_string(static_cast<int>(in[0])));
  if (in.size() - 1 < elements.size()) return damaged("a chunk is cut off");
  if (!elements.empty()) std::memcpy(elements.data(), in.data() + 1, elements.size());
  return 1 + elements.size();
}

class LosslessCodec final : public Codec {
 public:
  std::string_view name() const override { return "lossless"; }
  uint8_t wire_id() const override { return kWireId; }
  bool exact() const override { return true; }
  bool contraction() const override { return true; }
  double bits() const override { return 27.5; }
  bool supports(DType dtype) const override { return dtype == DType::kFloat32 || is_half(dtype); }

  size_t max_bytes(int64_t count, DType dtype) const override {
    const auto n = static_cast<size_t>(count);
    return kLengthBytes + (n + kChunk - 1) / kChunk + n * dtype_size(dtype);
  }

  size_t encode(std::span<const float> in, DType dtype, ResidualSpan residual, CodingSeed,
                Bytes out) const override {
    std::array<std::byte, kChunk * kMaxElement> elements;
    size_t used = kLengthBytes;
    for (size_t at = 0; at < in.size(); at += kChunk) {
      const size_t n = std::min(kChunk, in.size() - at);
      const Bytes stored = Bytes(elements).first(n * dtype_size(dtype));
      if (residual.empty())
        narrow(dtype, in.subspan(at, n), stored);
      else
        narrow_sum(dtype, in.subspan(at, n), residual.subspan(at, n), stored);
      used += encode_chunk(dtype, stored, n, out.data() + used);
    }
    check(used - kLengthBytes <= std::numeric_limits<uint32_t>::max(),
          "lossless: more than 4 GiB in one call");
    const auto length = static_cast<uint32_t>(used - kLengthBytes);
    std::memcpy(out.data(), &length, sizeof length);
    return used;
  }

  Result<size_t> decode(ConstBytes in, DType dtype, CodingSeed, bool accumulate,
                        std::span<float> out) const override {
    uint32_t length = 0;
    if (in.size() < sizeof length) return damaged("its length is cut off");
    std::memcpy(&length, in.data(), sizeof length);
    if (in.size() - kLengthBytes < length)
      return damaged(std::to_string(in.size() - kLengthBytes) + " bytes where " +
                     std::to_string(length) + " were expected");
    ConstBytes rest = in.subspan(kLengthBytes, length);
    std::array<std::byte, kChunk * kMaxElement> elements;
    for (size_t at = 0; at < out.size(); at += kChunk) {
      const size_t n = std::min(kChunk, out.size() - at);
      const Bytes stored = Bytes(elements).first(n * dtype_size(dtype));
      const Result<size_t> used = decode_chunk(rest, dtype, stored, n);
      if (!used.ok()) return used;
      rest = rest.subspan(used.value());
      if (accumulate)
        widen_add(dtype, stored, out.subspan(at, n));
      else
        widen(dtype, stored, out.subspan(at, n));
    }
    if (!rest.empty()) return damaged(std::to_string(rest.size()) + " bytes too many");
    return kLengthBytes + length;
  }

 private:
  // Stores in + residual; the residual keeps what narrowing lost, where that is finite.
  static void narrow_sum(DType dtype, std::span<const float> in, ResidualSpan residual,
                         Bytes stored) {
    std::array<float, kChunk> sum;
    std::array<float, kChunk> back;
    const size_t n = in.size();
    for (size_t i = 0; i < n; ++i) sum[i] = in[i] + residual.from[i];
    narrow(dtype, std::span(sum).first(n), stored);
    widen(dtype, stored, std::span(back).first(n));
    for (size_t i = 0; i < n; ++i) {
      const float lost = sum[i] - back[i];
      residual.to[i] = is_finite(lost) ? lost : residual.from[i];
    }
  }
};

Result<CodecPtr> make(std::string_view parameter) {
  if (!parameter.empty()) return bad_parameter("lossless", parameter, "");
  return CodecPtr(std::make_shared<LosslessCodec>());
}

constexpr std::array<std::string_view, 1> kExamples{"lossless"};

}  // namespace

CodecRow lossless_row() {
  return {"lossless", kWireId, "bit-exact, with shorter exponents", "", kExamples, make};
}

}  // namespace ringdist
