#include "codec/frame.h"

#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"

namespace ringdist {
namespace {

// The header in its memory layout, which is that of the wire on little-endian machines.
struct Header {
  uint8_t version = 1;
  uint8_t codec = 0;
  uint16_t parameters = 0;
  uint32_t count = 0;

  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == kFrameHeaderBytes);

Header header_of(const Codec& codec, size_t count) {
  return {1, codec.wire_id(), codec.wire_parameters(), static_cast<uint32_t>(count)};
}

std::string text(const Header& header) {
  return "version " + std::to_string(header.version) + ", codec " + std::to_string(header.codec) +
         ", parameters " + std::to_string(header.parameters) + ", count " +
         std::to_string(header.count);
}

}  // namespace

size_t max_frame_bytes(const Codec& codec, int64_t count, DType dtype) {
  return kFrameHeaderBytes + codec.max_bytes(count, dtype);
}

size_t encode_frame(const Codec& codec, std::span<const float> in, DType dtype,
                    ResidualSpan residual, CodecSeed seed, Bytes out) {
  check(in.size() <= std::numeric_limits<uint32_t>::max(), "a frame of more than 2^32 elements");
  const Header header = header_of(codec, in.size());
  std::memcpy(out.data(), &header, sizeof header);
  return sizeof header + codec.encode(in, dtype, residual, seed, out.subspan(sizeof header));
}

Result<size_t> decode_frame(const Codec& codec, ConstBytes in, DType dtype, CodecSeed seed,
                            bool accumulate, std::span<float> out) {
  Header header;
  if (in.size() < sizeof header)
    return Error(ErrorKind::kProtocol, "codec " + std::string(codec.name()) + ": " +
                                           std::to_string(in.size()) +
                                           " bytes where a frame should begin");
  std::memcpy(&header, in.data(), sizeof header);
  if (const Header wanted = header_of(codec, out.size()); header != wanted)
    return Error(ErrorKind::kProtocol, "codec " + std::string(codec.name()) + ": a frame of {" +
                                           text(header) + "} arrived where {" + text(wanted) +
                                           "} was expected");
  Result<size_t> used = codec.decode(in.subspan(sizeof header), dtype, seed, accumulate, out);
  if (!used.ok()) return used;
  return sizeof header + used.value();
}

}  // namespace ringdist
