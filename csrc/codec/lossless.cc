// Codec `lossless`: values as the op's dtype stores them, with Huffman-coded exponents.
// lossless.spec.md has the bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "codec/block_codec.h"
#include "codec/codec.h"
#include "kernel/cast.h"
#include "kernel/huffman.h"
#include "kernel/lossless_chunk.h"
#include "kernel/split_float.h"

namespace ringdist {
namespace {

constexpr uint8_t kWireId = 10;
// Version of the format. Version 0 had chunks without sizes and runs.
constexpr uint16_t kFormat = 1;
constexpr size_t kChunk = LosslessChunk::kElements;
constexpr size_t kRun = LosslessChunk::kRun;
constexpr size_t kMaxElement = sizeof(float);

Error damaged(const std::string& what) {
  return Error(ErrorKind::kProtocol, "codec lossless: " + what);
}

size_t at(int offset) { return static_cast<size_t>(offset); }

LosslessChunk chunk_of(size_t count, DType dtype) {
  return {static_cast<int>(count), static_cast<int>(dtype_size(dtype))};
}

// Returns the bytes in front of all chunks.
size_t head_bytes(size_t count) {
  return kLosslessLength + (count + kChunk - 1) / kChunk * kLosslessSize;
}

// Packs a chunk into `out`, which has space for the elements as they are. Returns the bytes
// written, or 0 if packing does not save enough bytes (LosslessChunk::pays()). The margin of pays()
// is the space that HuffmanWriter may overwrite behind its codes.
size_t pack(const LosslessChunk& chunk, DType dtype, ConstBytes elements, std::byte* out) {
  std::array<uint8_t, kChunk> symbols;
  std::array<std::byte, kChunk*(kMaxElement - 1)> rests;
  const std::span<uint8_t> used = std::span(symbols).first(at(chunk.count));
  split_exponents(dtype, elements, used, rests);
  const Symbols counts = count_symbols(used);
  const CodeLengths lengths = code_lengths(counts);
  const auto occurs = [](uint32_t n) { return n != 0; };
  const auto first =
      static_cast<int>(std::find_if(counts.begin(), counts.end(), occurs) - counts.begin());
  const auto last =
      static_cast<int>(counts.rend() - std::find_if(counts.rbegin(), counts.rend(), occurs) - 1);
  const auto bits = static_cast<int>(coded_bits(counts, lengths));
  const int size = chunk.packed_bytes(first, last, bits);
  if (!chunk.pays(size)) return 0;
  out[0] = static_cast<std::byte>(first);
  out[1] = static_cast<std::byte>(last);
  if (first != last) {
    for (int low = first; low <= last; low += 2) {
      const unsigned high = low + 1 <= last ? lengths[at(low + 1)] : 0u;
      out[chunk.lengths_at() + (low - first) / 2] =
          static_cast<std::byte>(lengths[at(low)] | high << 4);
    }
    HuffmanWriter codes(lengths, out + chunk.codes_at(first, last));
    for (int run = 0; run < chunk.runs(); ++run) {
      const auto taken = static_cast<uint16_t>(
          codes.put(used.subspan(at(run) * kRun, at(chunk.elements_of(run)))));
      std::memcpy(out + chunk.bits_at(first, last) + 2 * run, &taken, sizeof taken);
    }
    codes.finish();
  }
  std::memcpy(out + chunk.rests_at(first, last, bits), rests.data(), at(chunk.rest_bytes()));
  return at(size);
}

// Packs a chunk if that saves enough bytes, and copies its elements otherwise. A decoder
// distinguishes the two by the size.
size_t encode_chunk(const LosslessChunk& chunk, DType dtype, ConstBytes elements, std::byte* out) {
  if (const size_t size = pack(chunk, dtype, elements, out)) return size;
  std::memcpy(out, elements.data(), elements.size());
  return elements.size();
}

// Reads the code lengths of the symbols first to last. The caller has checked that `in` holds them.
CodeLengths read_lengths(ConstBytes in, int first, int last) {
  CodeLengths out{};
  for (int symbol = first; symbol <= last; ++symbol) {
    const auto pair = static_cast<unsigned>(in[at((symbol - first) / 2)]);
    out[at(symbol)] = static_cast<uint8_t>((symbol - first) % 2 == 0 ? pair & 0xf : pair >> 4);
  }
  return out;
}

// Unpacks a chunk of any bytes. Each size is checked before the part is read. The sum of the runs'
// bits then fixes the size of the codes, so no run begins beyond them.
Error unpack(const LosslessChunk& chunk, ConstBytes in, DType dtype, Bytes elements) {
  std::array<uint8_t, kChunk> symbols;
  const std::span<uint8_t> used = std::span(symbols).first(at(chunk.count));
  if (in.size() < at(chunk.lengths_at())) return damaged("a chunk is cut off");
  const auto first = static_cast<int>(in[0]);
  const auto last = static_cast<int>(in[1]);
  if (first > last) return damaged("a chunk's symbols make no sense");
  if (in.size() < at(chunk.codes_at(first, last))) return damaged("a chunk is cut off");
  int bits = 0;
  std::array<uint16_t, LosslessChunk::kRuns> of_run{};
  if (first != last)
    for (int run = 0; run < chunk.runs(); ++run) {
      std::memcpy(&of_run[at(run)], in.data() + chunk.bits_at(first, last) + 2 * run,
                  sizeof of_run[0]);
      bits += of_run[at(run)];
    }
  if (in.size() != at(chunk.packed_bytes(first, last, bits)))
    return damaged("a chunk's size is not that of its parts");
  if (first == last) {
    std::ranges::fill(used, static_cast<uint8_t>(first));
  } else {
    const CodeLengths lengths = read_lengths(in.subspan(at(chunk.lengths_at())), first, last);
    if (!is_complete(lengths)) return damaged("a chunk's code is not complete");
    const ConstBytes codes =
        in.first(at(chunk.rests_at(first, last, bits))).subspan(at(chunk.codes_at(first, last)));
    if (!huffman_decode(codes, lengths, std::span(of_run).first(at(chunk.runs())), kRun, used))
      return damaged("a run of codes does not end where it should");
  }
  join_exponents(dtype, used, in.subspan(at(chunk.rests_at(first, last, bits))), elements);
  return {};
}

Error decode_chunk(const LosslessChunk& chunk, ConstBytes in, DType dtype, Bytes elements) {
  if (in.size() > elements.size())
    return damaged("a chunk of " + std::to_string(in.size()) + " bytes; it takes at most " +
                   std::to_string(elements.size()));
  if (in.size() < elements.size()) return unpack(chunk, in, dtype, elements);
  std::memcpy(elements.data(), in.data(), elements.size());
  return {};
}

class LosslessCodec final : public Codec {
 public:
  std::string_view name() const override { return "lossless"; }
  uint8_t wire_id() const override { return kWireId; }
  uint16_t wire_parameters() const override { return kFormat; }
  bool exact() const override { return true; }
  bool contraction() const override { return true; }
  double bits() const override { return 27.5; }
  bool supports(DType dtype) const override { return dtype == DType::kFloat32 || is_half(dtype); }

  size_t max_bytes(int64_t count, DType dtype) const override {
    const auto n = static_cast<size_t>(count);
    return head_bytes(n) + n * dtype_size(dtype);
  }

  size_t encode(std::span<const float> in, DType dtype, ResidualSpan residual, CodecSeed,
                Bytes out) const override {
    std::array<std::byte, kChunk * kMaxElement> elements;
    std::byte* size_at = out.data() + kLosslessLength;
    size_t used = head_bytes(in.size());
    for (size_t begin = 0; begin < in.size(); begin += kChunk) {
      const size_t n = std::min(kChunk, in.size() - begin);
      const Bytes stored = Bytes(elements).first(n * dtype_size(dtype));
      if (residual.empty())
        narrow(dtype, in.subspan(begin, n), stored);
      else
        narrow_sum(dtype, in.subspan(begin, n), residual.subspan(begin, n), stored);
      const auto size =
          static_cast<uint16_t>(encode_chunk(chunk_of(n, dtype), dtype, stored, out.data() + used));
      std::memcpy(size_at, &size, sizeof size);
      size_at += sizeof size;
      used += size;
    }
    check(used - kLosslessLength <= std::numeric_limits<uint32_t>::max(),
          "lossless: more than 4 GiB in one call");
    const auto length = static_cast<uint32_t>(used - kLosslessLength);
    std::memcpy(out.data(), &length, sizeof length);
    return used;
  }

  Result<size_t> decode(ConstBytes in, DType dtype, CodecSeed, bool accumulate,
                        std::span<float> out) const override {
    uint32_t length = 0;
    if (in.size() < sizeof length) return damaged("its length is cut off");
    std::memcpy(&length, in.data(), sizeof length);
    if (in.size() - kLosslessLength < length)
      return damaged(std::to_string(in.size() - kLosslessLength) + " bytes where " +
                     std::to_string(length) + " were expected");
    in = in.first(kLosslessLength + size_t{length});
    if (in.size() < head_bytes(out.size())) return damaged("its chunks' sizes are cut off");
    const std::byte* size_at = in.data() + kLosslessLength;
    ConstBytes rest = in.subspan(head_bytes(out.size()));
    std::array<std::byte, kChunk * kMaxElement> elements;
    for (size_t begin = 0; begin < out.size(); begin += kChunk) {
      const size_t n = std::min(kChunk, out.size() - begin);
      const Bytes stored = Bytes(elements).first(n * dtype_size(dtype));
      uint16_t size = 0;
      std::memcpy(&size, size_at, sizeof size);
      size_at += sizeof size;
      if (rest.size() < size) return damaged("a chunk is cut off");
      if (Error error = decode_chunk(chunk_of(n, dtype), rest.first(size), dtype, stored))
        return error;
      rest = rest.subspan(size);
      if (accumulate)
        widen_add(dtype, stored, out.subspan(begin, n));
      else
        widen(dtype, stored, out.subspan(begin, n));
    }
    if (!rest.empty()) return damaged(std::to_string(rest.size()) + " bytes too many");
    return in.size();
  }

 private:
  // Stores in + residual. NaNs are stored in a form that does not depend on the processor. Where it
  // is finite, the loss of narrowing becomes the new residual.
  static void narrow_sum(DType dtype, std::span<const float> in, ResidualSpan residual,
                         Bytes stored) {
    std::array<float, kChunk> sum;
    std::array<float, kChunk> back;
    const size_t n = in.size();
    for (size_t i = 0; i < n; ++i) {
      const float x = in[i] + residual.from[i];
      sum[i] = x == x ? x : std::numeric_limits<float>::quiet_NaN();
    }
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
