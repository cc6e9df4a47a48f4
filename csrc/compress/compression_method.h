// How one parameter's gradient travels. A bucket holds parameters of different treatments; each
// adds what it needs to the plan of the bucket. Immutable: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "codec/codec_map.h"
#include "compress/low_rank.h"

namespace ringdist {

// A parameter's place in the buffer of a bucket.
struct ParameterSlice {
  int64_t offset = 0;  // elements
  int64_t count = 0;
  int64_t rows = 1;           // of the parameter as a matrix, as it lies in memory
  float* residual = nullptr;  // `count` of them; null without error feedback
  float* next = nullptr;      // as of CodecMapPart

  int64_t end() const { return offset + count; }
};

// What a bucket needs: one allreduce with a block map over some pieces of it, low-rank averages of
// the others.
struct BucketPlan {
  struct LowRank {
    ParameterSlice slice;
    MatrixShape shape;
  };
  std::shared_ptr<CodecMap> codec_map = std::make_shared<CodecMap>();
  bool coded = false;                  // some part is compressed
  std::vector<ParameterSlice> pieces;  // where the block map's elements lie, in order
  std::vector<LowRank> low_rank;

  void add_part(const ParameterSlice& slice, const CodecPair& codecs);
};

class CompressionMethod {
 public:
  virtual ~CompressionMethod() = default;

  virtual const std::string& name() const = 0;  // "int4", "topk:10>topk:40"
  // What is lost is kept and added to the next gradient.
  virtual bool feedback() const = 0;
  // The same for one parameter: not where nothing of it is lost.
  virtual bool feedback_of(const ParameterSlice&) const { return feedback(); }
  // Typical bits per element that each rank sends for its contribution.
  virtual double bits() const = 0;
  // At most this many bytes go from a rank to the others, of contributions and of sums, for each
  // element of theirs; times (size - 1) / size for what one rank sends.
  virtual double bytes(const ParameterSlice& slice, DType dtype) const = 0;
  virtual void add(const ParameterSlice& slice, BucketPlan& plan) const = 0;
};

using CompressionMethodPtr = std::shared_ptr<const CompressionMethod>;

// A kind of treatment.
struct CompressionMethodRow {
  std::string_view name;
  bool (*accepts)(std::string_view spec);
  // In a group of `size`. feedback: nullopt for the treatment's default. Errors (kInvalidArgument)
  // name `argument`, the spec, and what is accepted.
  Result<CompressionMethodPtr> (*make)(std::string_view argument, const std::string& spec, int size,
                                       std::optional<bool> feedback);
  std::span<const std::string_view> examples;  // specs that tests run over
};

// All kinds; the last one takes what no other accepts.
std::span<const CompressionMethodRow> compression_methods();

// By the first kind that accepts `spec`; as CompressionMethodRow::make.
Result<CompressionMethodPtr> make_compression_method(std::string_view argument,
                                                     const std::string& spec, int size,
                                                     std::optional<bool> feedback);

}  // namespace ringdist
