#include "torch/ddp/compression_options.h"

#include <algorithm>

#include "codec/none.h"
#include "compress/auto_codec.h"
#include "torch/errors.h"
#include "torch/ops/coding.h"

namespace ringdist {

std::string base_codec(const std::string& codec) {
  return codec == kAuto ? std::string(kNoCodec) : codec;
}

bool ever_auto(const CompressionOptions& options) {
  return options.codec == kAuto ||
         std::ranges::any_of(options.schedule, [](const auto& at) { return at.second == kAuto; });
}

void refuse(ErrorKind kind, const std::string& what) {
  throw_error(Error(kind, "ringdist: compress: " + what));
}

// In blocks an element's bits depend on its place. As the op itself would say, but before training.
void check_deterministic(const ProcessGroupRing& group, const std::string& argument,
                         const std::string& spec, const Treatment& treatment) {
  if (group.communicator()->config().deterministic != "layout") return;
  BucketPlan plan;
  treatment.add({0, kMinCompressed, 1}, plan);
  if (plan.coded)
    refuse(ErrorKind::kInvalidArgument,
           argument + "='" + spec +
               "': the group is of deterministic='layout', which needs uncompressed gradients: the "
               "elements of a block share a scale; accepted: none and powersgd:R, rules included");
}

void check_options(const CompressionOptions& options, const ProcessGroupRing& group) {
  const auto check_one = [&](const std::string& argument, const std::string& codec) {
    const std::string& meant = codec == kAuto ? AutoCodec::candidates()[2] : codec;  // a lossy one
    const auto made =
        value_of(make_treatment(argument, meant, group.getSize(), options.error_feedback));
    check_deterministic(group, argument, codec, *made);
  };
  check_one("codec", options.codec);
  for (const auto& [step, codec] : options.schedule)
    check_one("schedule[" + std::to_string(step) + "]", codec);
}

}  // namespace ringdist
