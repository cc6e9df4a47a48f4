// A Codec turns the elements of a segment into bytes and back. It belongs to an edge of a schedule,
// not to an algorithm. Immutable: any thread may use it. The wire format of each is in its spec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/buffers.h"
#include "base/dtype.h"
#include "base/error.h"

namespace ringdist {

class Codec {
 public:
  virtual ~Codec() = default;

  virtual std::string_view name() const = 0;
  // The encoded bytes are the elements themselves: the executor then sends and reduces in place,
  // and never calls encode().
  virtual bool identity() const { return false; }
  virtual bool supports(DType dtype) const = 0;

  // No encoding of `count` elements is longer.
  virtual size_t max_bytes(int64_t count, DType dtype) const = 0;

  // Encodes `in` into `out` (at least max_bytes long); returns the bytes used. With a residual (one
  // fp32 per element, else empty): encodes in + residual and leaves what was lost in it.
  virtual size_t encode(ConstBytes in, DType dtype, std::span<float> residual, Bytes out) const = 0;

  // Decodes into the elements `out`, or adds to them. Any bytes at all end in a value or an Error.
  virtual Error decode(ConstBytes in, DType dtype, bool accumulate, Bytes out) const = 0;
};

struct CodecRow {
  std::string_view name;
  std::string_view description;
  const Codec* codec;
};

std::span<const CodecRow> codecs();
const Codec* find_codec(std::string_view name);
std::string codec_names();

}  // namespace ringdist
