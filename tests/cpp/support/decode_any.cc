#include "support/decode_any.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "codec/frame.h"

namespace ringdist::test {
namespace {

constexpr size_t kHeader = 5;
constexpr CodecSeed kSeed{1, 2};

CodecPtr find(uint8_t wire_id, size_t example, bool rotated) {
  for (const CodecRow& row : codecs()) {
    if (row.wire_id != wire_id) continue;
    const std::string spec(row.examples[example % row.examples.size()]);
    Result<CodecPtr> out = parse_codec(rotated ? spec + "+h" : spec);
    return out.ok() ? out.value() : nullptr;
  }
  return nullptr;
}

}  // namespace

bool decode_any(std::span<const uint8_t> input) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  if (input.size() < kHeader) return false;
  const unsigned flags = input[2];
  const CodecPtr codec = find(input[0], input[1], (flags & 1) != 0);
  if (codec == nullptr) return false;
  const DType dtype = kTypes[(flags >> 3 & 3) % std::size(kTypes)];
  const size_t count = input[3] | static_cast<size_t>(input[4]) << 8;
  // The copy has exactly the size of the encoding, so that AddressSanitizer detects reads past its
  // end.
  const size_t size = input.size() - kHeader;
  const auto copy = std::make_unique<std::byte[]>(size);
  std::transform(input.begin() + kHeader, input.end(), copy.get(),
                 [](uint8_t byte) { return std::byte{byte}; });
  const ConstBytes bytes(copy.get(), size);
  std::vector<float> out(count, 1.0f);
  const bool accumulate = (flags & 2) != 0;
  const Result<size_t> used = (flags & 4) != 0
                                  ? decode_frame(*codec, bytes, dtype, kSeed, accumulate, out)
                                  : codec->decode(bytes, dtype, kSeed, accumulate, out);
  check(used.ok() ? used.value() <= size : used.error().kind() == ErrorKind::kProtocol,
        "decode() used more than there was, or gave another kind of error");
  return true;
}

}  // namespace ringdist::test
