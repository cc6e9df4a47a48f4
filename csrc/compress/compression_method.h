// Compression methods: how one parameter's gradient travels. A bucket holds parameters of different
// methods, and each method adds its part to the plan of the bucket. Methods are immutable, so any
// thread may use them.
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

// Position of a parameter in the buffer of a bucket.
struct ParameterSlice {
  int64_t offset = 0;  // elements
  int64_t count = 0;
  int64_t rows = 1;           // rows of the parameter as a matrix, by its memory order
  float* residual = nullptr;  // `count` of them; null without error feedback
  float* next = nullptr;      // see CodecMapPart::next

  int64_t end() const { return offset + count; }
};

// Plan for one bucket: one allreduce with a codec map over some slices, and low-rank averages of
// the others.
struct BucketPlan {
  // A matrix that PowerSGD averages.
  struct LowRank {
    ParameterSlice slice;
    MatrixShape shape;
  };
  std::shared_ptr<CodecMap> codec_map = std::make_shared<CodecMap>();
  bool coded = false;                  // true if some part is compressed
  std::vector<ParameterSlice> pieces;  // slices that the codec map covers, in order
  std::vector<LowRank> low_rank;

  // Adds a slice to the codec map. Slices come in the order of their offsets. The map counts only
  // the elements of `pieces`, so its offsets differ from those of the bucket after a low-rank
  // slice. Merges neighbours that are both uncompressed.
  void add_part(const ParameterSlice& slice, const CodecPair& codecs);
};

// Method for the gradients of one parameter. See codec_method.cc and low_rank_method.cc.
class CompressionMethod {
 public:
  virtual ~CompressionMethod() = default;

  virtual const std::string& name() const = 0;  // the spec, such as "int4" or "topk:10>topk:40"
  // Returns true if the method uses error feedback.
  virtual bool feedback() const = 0;
  // Returns the same for one parameter. It is false if nothing of that parameter is lost. Then its
  // slice needs no residual.
  virtual bool feedback_of(const ParameterSlice&) const { return feedback(); }
  // Returns the typical number of bits per element that a rank sends for its contribution. Rules
  // compare methods by it.
  virtual double bits() const = 0;
  // Returns an upper bound of the bytes that the ranks send to each other for one copy of the
  // slice, for contributions and results together. One rank sends (size - 1) / size times as much.
  virtual double bytes(const ParameterSlice& slice, DType dtype) const = 0;
  // Adds the slice to the plan of its bucket. Its residual is set if feedback_of() is true.
  virtual void add(const ParameterSlice& slice, BucketPlan& plan) const = 0;
};

using CompressionMethodPtr = std::shared_ptr<const CompressionMethod>;

// Registry row of a kind of method.
struct CompressionMethodRow {
  std::string_view name;
  // Returns true if the spec belongs to this kind.
  bool (*accepts)(std::string_view spec);
  // Creates the method for a group of `size` ranks. `feedback` is nullopt for the method's default.
  // Error kInvalidArgument names `argument`, the spec and what is accepted.
  Result<CompressionMethodPtr> (*make)(std::string_view argument, const std::string& spec, int size,
                                       std::optional<bool> feedback);
  std::span<const std::string_view> examples;  // specs that tests run over
};

// Returns all kinds. The last one matches every spec that no other kind matches.
std::span<const CompressionMethodRow> compression_methods();

// Creates a method of the first kind that matches `spec`. Arguments and errors are those of
// CompressionMethodRow::make.
Result<CompressionMethodPtr> make_compression_method(std::string_view argument,
                                                     const std::string& spec, int size,
                                                     std::optional<bool> feedback);

}  // namespace ringdist
