#include "codec/block_codec.h"

namespace ringdist {

size_t BlockCodec::max_bytes(int64_t count, DType) const {
  const int64_t tail = count % block_;
  return static_cast<size_t>(count / block_) * block_bytes(block_) +
         (tail == 0 ? 0 : block_bytes(tail));
}

size_t BlockCodec::encode(std::span<const float> in, DType dtype, ResidualSpan residual,
                          CodecSeed seed, Bytes out) const {
  const size_t size = max_bytes(static_cast<int64_t>(in.size()), dtype);
  encode_blocks(in, residual, seed, out.first(size));
  return size;
}

Result<size_t> BlockCodec::decode(ConstBytes in, DType dtype, CodecSeed seed, bool accumulate,
                                  std::span<float> out) const {
  const size_t size = max_bytes(static_cast<int64_t>(out.size()), dtype);
  if (in.size() < size)
    return Error(ErrorKind::kProtocol, "codec " + name_ + ": " + std::to_string(in.size()) +
                                           " bytes where " + std::to_string(size) +
                                           " were expected");
  if (Error error = decode_blocks(in.first(size), seed, accumulate, out)) return error;
  return size;
}

Error bad_parameter(std::string_view codec, std::string_view given, std::string_view accepted) {
  const std::string who = "codec '" + std::string(codec) + "'";
  const std::string what = "'" + std::string(given) + "'";
  if (accepted.empty())
    return Error(ErrorKind::kInvalidArgument, who + " takes no parameter, got " + what);
  return Error(ErrorKind::kInvalidArgument,
               who + ": parameter " + what + " is not known; have: " + std::string(accepted));
}

}  // namespace ringdist
