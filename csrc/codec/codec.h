// Interface of codecs, their registry and the parsing of their names. codec/README.md has the rules
// of the wire format, and <name>.spec.md has the bytes of each codec. All functions may be called
// by any thread.
//
// All arithmetic is in fp32, whatever the dtype of the op. The caller converts from and to that
// dtype.
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

// Seeds for the random choices of a codec, so that a run repeats bit by bit. They are not sent.
struct CodecSeed {
  uint64_t shared = 0;  // equal at the encoder and all decoders: rotations, random indices
  uint64_t own = 0;     // differs between encoders: stochastic rounding
};

// Turns float values into fewer bytes and back. A codec belongs to an edge of a schedule, not to an
// algorithm. Codecs are immutable, so any thread may use them.
class Codec {
 public:
  virtual ~Codec() = default;

  // Returns the canonical text with parameters: "int4", "topk:10", "onebit+h". Codecs with equal
  // texts encode alike. parse_codec() accepts the text.
  virtual std::string_view name() const = 0;
  // Return the codec's fields of the frame header: the wire id of its row, and its parameters as
  // bits. decode_frame() refuses bytes with other fields, so every property that changes the bytes
  // must show in them.
  virtual uint8_t wire_id() const = 0;
  virtual uint16_t wire_parameters() const { return 0; }

  // Returns true if decoding restores the exact input values, as the op's dtype stores them.
  virtual bool exact() const { return false; }
  // Returns true if |x - Q(x)|^2 < |x|^2 for every finite x != 0. For subnormal x a codec may have
  // <= only; its spec documents that. Error feedback requires this property.
  virtual bool contraction() const = 0;
  // Returns true if each element keeps its value up to a rounding to 8 bits or more. The bits are
  // relative to the element or to the largest one of its block. Such codecs are fit for values that
  // are not gradients.
  virtual bool keeps_values() const { return exact(); }
  // Returns true if error feedback is on by default. It is on for contractions below 8 bits.
  virtual bool feedback_by_default() const { return false; }
  // Returns the number of elements that share a scale: a power of two, at most kMaxBlock. If a is
  // whole blocks, encode(a ++ b) = encode(a) ++ encode(b), except for exact codecs and those that
  // use the seed.
  virtual int64_t block() const { return 1; }
  static constexpr int64_t kMaxBlock = 1024;
  // Returns the typical bits per element of an fp32 op, scales included. It serves planning and
  // tables. Codecs with an encoding that depends on the values return a guess.
  virtual double bits() const = 0;
  // Returns true if ops of this dtype can use the codec. encode() and decode() require it.
  virtual bool supports(DType dtype) const = 0;

  // Returns an upper limit of the encoded bytes of `count` elements, without a frame header. Block
  // codecs use exactly that many.
  virtual size_t max_bytes(int64_t count, DType dtype) const = 0;

  // Encodes `in` into `out`, which has at least max_bytes() bytes and does not overlap the rest, in
  // one pass. Returns the bytes used. `residual` has one fp32 per element, or is empty. With a
  // residual, it encodes in + residual and writes the loss of every element as the new residual.
  //
  // If a value of a block, with its residual, is not finite, the block decodes to NaN and its
  // residual stays unchanged. Codecs without a scale (none, fp16, bf16, lossless) keep inf.
  // `dtype` is the op's: exact codecs send values as it stores them, and others ignore it.
  virtual size_t encode(std::span<const float> in, DType dtype, ResidualSpan residual,
                        CodecSeed seed, Bytes out) const = 0;

  // Decodes out.size() elements from the front of `in`, or adds them to `out`, in one pass. Returns
  // the bytes used. Any input is safe: it gives values or an error. Error: kProtocol. After an
  // error `out` is undefined, because earlier blocks may have been written or added. `dtype` and
  // seed.shared must be those of encode().
  virtual Result<size_t> decode(ConstBytes in, DType dtype, CodecSeed seed, bool accumulate,
                                std::span<float> out) const = 0;
};

using CodecPtr = std::shared_ptr<const Codec>;

// Registry entry of a family of codecs, which has the text before ':' in a spec as its name.
struct CodecRow {
  std::string_view name;
  uint8_t wire_id;  // sent to peers, so it is never reused
  std::string_view description;
  std::string_view parameters;  // for --help: "k of 1024, or a share: topk:10, topk:0.01"
  std::span<const std::string_view> examples;  // specs for tests, benchmarks and tables
  // Makes a codec. `parameter` is the text after ':', or "". Error: kInvalidArgument, with the
  // accepted values in its message.
  Result<CodecPtr> (*make)(std::string_view parameter);
  // Spec that parse_codec_pair() parses instead if its whole argument is the bare name. Empty if it
  // keeps the name.
  std::string_view alone = {};
  // Returns the default codec of results if contributions have the codec `contribution`, in a group
  // of `size`. `contribution` is a canonical name of this row without "+h", which the caller adds
  // again. If it is null, results have the same codec.
  std::string (*result_of)(std::string_view contribution, int size) = nullptr;
};

// Returns all codecs, in the order of tables and messages. The table is static.
std::span<const CodecRow> codecs();
std::string codec_names();  // "none, fp16, ...", for messages
// Returns the names of codecs for which `such` is true of their first example.
std::string codec_names_where(const std::function<bool(const Codec&)>& such);
std::string_view codec_name(uint8_t wire_id);  // "?" for an id that does not exist

// Parses "int4", "topk:0.01", "int4+h" or "bf16:stochastic". Error: kInvalidArgument, for an
// unknown name (the message lists all names), a bad parameter, or "+h" on an exact codec.
Result<CodecPtr> parse_codec(std::string_view spec);

// Codecs of the two phases of a compressed reduction: contributions that ranks send, and results.
struct CodecPair {
  CodecPtr contribution;
  CodecPtr result;
  // Returns true if both are `none`, so that the op is not treated as compressed. An exact codec
  // such as `lossless` is compressed.
  bool plain() const;
  std::string name() const;  // "topk:10>topk:40"
};

// Parses "A>B", or "A" with the default B of a group of `size`. The default for "onebit" is
// "onebit+h" for both, and for "topk:k" it is "topk:k>topk:min(4, size) k", where 1024 is the
// limit. Other codecs are used twice. "" means none. Errors are those of parse_codec().
Result<CodecPair> parse_codec_pair(std::string_view spec, int size);

// Does the same for the value of a user's argument; errors name `argument`.
Result<CodecPair> parse_compression(std::string_view argument, const std::string& spec, int size);
// Returns kInvalidArgument if `spec` is a pair. Data that is encoded only once, like the parts of
// an allgather, takes a single codec.
Error check_single_codec(const std::string& spec);

}  // namespace ringdist
