// The method of all codecs and pairs of codecs. It accepts every spec, so it is the last row of the
// registry, and its errors list what is accepted.
#include <array>

#include "codec/residual.h"
#include "compress/compression_method.h"

namespace ringdist {
namespace {

// An allreduce with codecs on its edges: one for contributions, one for results.
class CodecMethod final : public CompressionMethod {
 public:
  CodecMethod(CodecPair codecs, bool feedback)
      : codecs_(std::move(codecs)), feedback_(feedback), name_(codecs_.name()) {}

  const std::string& name() const override { return name_; }
  bool feedback() const override { return feedback_; }
  double bits() const override { return codecs_.contribution->bits(); }

  double bytes(const ParameterSlice& slice, DType dtype) const override {
    return sent(*codecs_.contribution, slice, dtype) + sent(*codecs_.result, slice, dtype);
  }

  void add(const ParameterSlice& slice, BucketPlan& plan) const override {
    plan.add_part(slice, codecs_);
  }

 private:
  // Returns the most bytes that the codec makes of the slice. The gain of an exact codec depends on
  // the values, so it counts as none.
  static double sent(const Codec& codec, const ParameterSlice& slice, DType dtype) {
    const size_t plain = static_cast<size_t>(slice.count) * dtype_size(dtype);
    return static_cast<double>(codec.exact() ? plain : codec.max_bytes(slice.count, dtype));
  }

  const CodecPair codecs_;
  const bool feedback_;
  const std::string name_;
};

// Returns the names of codecs that allow error feedback, for error messages.
std::string feedback_codecs() {
  return codec_names_where(
      [](const Codec& codec) { return !codec.exact() && codec.contraction(); });
}

Result<CompressionMethodPtr> make(std::string_view argument, const std::string& spec, int size,
                                  std::optional<bool> feedback) {
  auto codecs = parse_compression(argument, spec, size);
  if (!codecs.ok()) return codecs.error();
  const auto& [contribution, result] = codecs.value();
  if ((contribution->exact() && result->exact()) || size == 1) feedback = false;  // nothing is lost
  if (feedback.value_or(false) && !may_use_feedback(codecs.value()))
    return Error(ErrorKind::kInvalidArgument,
                 "ringdist: error_feedback=True with " + std::string(argument) + "='" + spec +
                     "', which may lose more than it was given, so that what is owed would grow; "
                     "codecs that may: " +
                     feedback_codecs());
  const bool on = feedback.value_or(feedback_by_default(codecs.value()));
  return CompressionMethodPtr(std::make_shared<CodecMethod>(codecs.value(), on));
}

constexpr std::array<std::string_view, 4> kExamples{"none", "int8", "int4>int8", "topk:10"};

}  // namespace

CompressionMethodRow codec_method() {
  return {"codec", [](std::string_view) { return true; }, make, kExamples};
}

}  // namespace ringdist
