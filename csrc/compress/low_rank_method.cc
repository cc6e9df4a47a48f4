// The method "powersgd:r" averages a parameter's gradient through an approximation of rank r. The
// gradient is seen as a matrix, with the outermost dimension as rows and all others as columns. See
// low_rank.h.
#include <algorithm>
#include <array>
#include <charconv>

#include "codec/none.h"
#include "compress/compression_method.h"

namespace ringdist {
namespace {

constexpr std::string_view kName = "powersgd";
constexpr int64_t kDefaultRank = 4;
constexpr int64_t kMostRank = 64;

// PowerSGD for matrices where it saves bytes; no compression for all other parameters.
class LowRankMethod final : public CompressionMethod {
 public:
  LowRankMethod(int64_t rank, int size, bool feedback)
      : rank_(rank), size_(size), feedback_(feedback), name_("powersgd:" + std::to_string(rank)) {}

  const std::string& name() const override { return name_; }
  bool feedback() const override { return feedback_; }
  bool feedback_of(const ParameterSlice& slice) const override {
    return feedback_ && pays(shape_of(slice));
  }
  // The number of bits depends on the shape. Zero makes PowerSGD coarser than every codec of
  // elements, which is what rules compare.
  double bits() const override { return 0; }

  double bytes(const ParameterSlice& slice, DType dtype) const override {
    const MatrixShape shape = shape_of(slice);
    // There are two averages, each with a contribution and a result.
    const int64_t factors = shape.left() + shape.right();
    if (pays(shape)) return 2.0 * static_cast<double>(factors) * sizeof(float);
    return 2.0 * static_cast<double>(slice.count) * static_cast<double>(dtype_size(dtype));
  }

  void add(const ParameterSlice& slice, BucketPlan& plan) const override {
    const MatrixShape shape = shape_of(slice);
    if (pays(shape))
      plan.low_rank.push_back({slice, shape});
    else
      plan.add_part(slice, parse_codec_pair(kNoCodec, 1).value());
  }

 private:
  // Returns the slice as a matrix. The rank is limited by its rows and columns.
  MatrixShape shape_of(const ParameterSlice& slice) const {
    const int64_t rows = std::max<int64_t>(1, slice.rows);
    const int64_t columns = slice.count / rows;
    return {rows, columns, std::min({rank_, rows, columns})};
  }
  // Returns true if the factors take less than half of the values. Otherwise, as for vectors and
  // narrow matrices, the saving does not justify the loss.
  bool pays(const MatrixShape& shape) const {
    return size_ > 1 && 2 * (shape.left() + shape.right()) < shape.count();
  }

  const int64_t rank_;
  const int size_;  // with one rank, nothing is compressed
  const bool feedback_;
  const std::string name_;
};

bool accepts(std::string_view spec) { return spec.substr(0, spec.find(':')) == kName; }

Result<CompressionMethodPtr> make_low_rank(std::string_view argument, const std::string& spec,
                                           int size, std::optional<bool> feedback) {
  int64_t rank = kDefaultRank;
  if (spec != kName) {
    const char* begin = spec.data() + kName.size() + 1;
    const char* end = spec.data() + spec.size();
    const auto [at, error] = std::from_chars(begin, end, rank);
    if (error != std::errc() || at != end || rank < 1 || rank > kMostRank)
      return Error(ErrorKind::kInvalidArgument,
                   "ringdist: " + std::string(argument) + "='" + spec +
                       "': expected powersgd:RANK alone, RANK in 1 .. " +
                       std::to_string(kMostRank) + ", as in powersgd:4");
  }
  const bool on = size > 1 && feedback.value_or(true);
  return CompressionMethodPtr(std::make_shared<LowRankMethod>(rank, size, on));
}

constexpr std::array<std::string_view, 2> kLowRankExamples{"powersgd", "powersgd:2"};

}  // namespace

CompressionMethodRow low_rank_method() { return {kName, accepts, make_low_rank, kLowRankExamples}; }

}  // namespace ringdist
