#include "kernel/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ringdist {
namespace {

#if defined(__x86_64__)

constexpr size_t kLine = 64;

// Copy whole cache lines with streaming stores. `to` is aligned to a line, `from` need not be.
[[gnu::target("avx2")]] void stream_avx2(std::byte* to, const std::byte* from, size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    const auto* in = reinterpret_cast<const __m256i_u*>(from);
    auto* out = reinterpret_cast<__m256i*>(to);
    const __m256i low = _mm256_loadu_si256(in);
    const __m256i high = _mm256_loadu_si256(in + 1);
    _mm256_stream_si256(out, low);
    _mm256_stream_si256(out + 1, high);
  }
}

void stream_sse2(std::byte* to, const std::byte* from, size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine)
    for (size_t part = 0; part < kLine / sizeof(__m128i); ++part)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + part,
                       _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from) + part));
}

void stream(std::byte* to, const std::byte* from, size_t bytes) {
  static const auto lines = __builtin_cpu_supports("avx2") ? stream_avx2 : stream_sse2;
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  const size_t middle = (bytes - head) / kLine * kLine;
  lines(to + head, from + head, middle / kLine);
  std::memcpy(to + head + middle, from + head + middle, bytes - head - middle);
  _mm_sfence();  // a release store does not order streaming stores
}

#else

void stream(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace

void copy(std::byte* to, const std::byte* from, size_t bytes, StoreMode stores) {
  if (stores == StoreMode::kStreaming) return stream(to, from, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace ringdist
