// A Codec turns float values into fewer bytes and back. It belongs to an edge of a schedule, not to
// an algorithm. Immutable: any thread may use it. codec/README.md has the rules of the wire format,
// <name>.spec.md the bytes of each codec.
//
// All arithmetic is in fp32, whatever the dtype of the op: the caller widens and narrows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/buffers.h"
#include "base/dtype.h"
#include "base/error.h"
#include "kernel/residual_span.h"

namespace ringdist {

// What a codec may draw randomness from, so that a run repeats bit by bit. Not on the wire.
struct CodecSeed {
  uint64_t shared = 0;  // equal at the encoder and at every decoder: rotations, random indices
  uint64_t own = 0;     // differs between encoders: stochastic rounding
};

class Codec {
 public:
  virtual ~Codec() = default;

  // The canonical text, with parameters: "int4", "topk:10", "onebit+h". Equal texts encode alike;
  // parse_codec() reads it back.
  virtual std::string_view name() const = 0;
  // What the frame header carries: the number of the codec's row, and its parameters as bits.
  virtual uint8_t wire_id() const = 0;
  virtual uint16_t wire_parameters() const { return 0; }

  // Decoding gives back the very values that went in, as the op's dtype stores them.
  virtual bool exact() const { return false; }
  // |x - Q(x)|^2 < |x|^2 for every finite x != 0 (where x is subnormal, a codec may get by with <=;
  // its spec says so). Only such codecs may use error feedback.
  virtual bool contraction() const = 0;
  // Each element by itself comes back as what it was, up to a rounding of 8 bits or more (of the
  // element, or of the largest of its block): fit for values that are not gradients.
  virtual bool keeps_values() const { return exact(); }
  // Error feedback unless the user says otherwise: contractions below 8 bits.
  virtual bool feedback_by_default() const { return false; }
  // Elements that share a scale. encode(a ++ b) = encode(a) ++ encode(b) if a is whole blocks, but
  // for `exact` codecs and those that draw from the seed. A power of two, at most kMaxBlock.
  virtual int64_t block() const { return 1; }
  static constexpr int64_t kMaxBlock = 1024;
  // Typical bits per element of an fp32 op, scales included: for planning and tables.
  virtual double bits() const = 0;
  virtual bool supports(DType dtype) const = 0;

  // No encoding of `count` elements is longer.
  virtual size_t max_bytes(int64_t count, DType dtype) const = 0;

  // Encodes `in` into `out` (at least max_bytes long); returns the bytes used. With a residual (one
  // fp32 per element; empty for none) encodes in + residual and leaves what was lost, for every
  // element, where the next one is to be: a block that holds a non-finite value decodes to NaN and
  // owes what it owed. One pass.
  // `dtype` is the op's: exact codecs send values as it stores them, the others ignore it.
  virtual size_t encode(std::span<const float> in, DType dtype, ResidualSpan residual,
                        CodecSeed seed, Bytes out) const = 0;

  // Decodes out.size() elements from the front of `in`, or adds them to `out`; returns the bytes
  // used. One pass. Any bytes at all end in values or in an Error (kProtocol).
  virtual Result<size_t> decode(ConstBytes in, DType dtype, CodecSeed seed, bool accumulate,
                                std::span<float> out) const = 0;
};

using CodecPtr = std::shared_ptr<const Codec>;

// A family of codecs: the text before ':' in a spec.
struct CodecRow {
  std::string_view name;
  uint8_t wire_id;  // on the wire: never reused
  std::string_view description;
  std::string_view parameters;  // for --help: "k of 1024, or a share: topk:10, topk:0.01"
  std::span<const std::string_view> examples;  // specs that tests, benchmarks and tables run over
  // `parameter` is the text after ':' ("" for none). Errors (kInvalidArgument) name what is
  // accepted.
  Result<CodecPtr> (*make)(std::string_view parameter);
  // What its bare name means for a pair, if that is something else.
  std::string_view alone = {};
  // The codec of sums whose contributions have the codec of that name, in a group of `size`. Null:
  // the same.
  std::string (*result_of)(std::string_view contribution, int size) = nullptr;
};

std::span<const CodecRow> codecs();
std::string codec_names();  // "none, fp16, ...", for messages
// The names of those whose first example is such.
std::string codec_names_where(const std::function<bool(const Codec&)>& such);
std::string_view codec_name(uint8_t wire_id);  // "?" for one that does not exist

// "int4", "topk:0.01", "int4+h", "bf16:stochastic". Errors (kInvalidArgument): an unknown name
// (lists what there is), a bad parameter, "+h" on an exact codec.
Result<CodecPtr> parse_codec(std::string_view spec);

// The codecs of contributions and of results.
struct CodecPair {
  CodecPtr contribution;
  CodecPtr result;
  // Both send values as they are: the op need not be treated as compressed.
  bool plain() const;
  std::string name() const;  // "topk:10>topk:40"
};

// "A>B", or "A" with the default B of a group of `size`: "onebit" means "onebit+h" for both,
// "topk:k" means "topk:k>topk:min(4, size) k", others the same twice. "" means none. Errors as
// parse_codec.
Result<CodecPair> parse_codec_pair(std::string_view spec, int size);

// The same of what a user gave as `argument`, which the Error names.
Result<CodecPair> parse_compression(std::string_view argument, const std::string& spec, int size);
// What is encoded once, an allgather's parts, takes no pair.
Error check_single_codec(const std::string& spec);

}  // namespace ringdist
