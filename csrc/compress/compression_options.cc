#include "compress/compression_options.h"

#include <algorithm>

#include "codec/none.h"
#include "compress/auto_codec.h"

namespace ringdist {

std::string base_codec(const std::string& codec) {
  return codec == kAuto ? std::string(kNoCodec) : codec;
}

bool ever_auto(const CompressionOptions& options) {
  return options.codec == kAuto ||
         std::ranges::any_of(options.schedule, [](const auto& at) { return at.second == kAuto; });
}

std::string codec_at(const CompressionOptions& options, int64_t step, const std::string& given) {
  const auto after = options.schedule.upper_bound(step);
  if (after != options.schedule.begin()) return std::prev(after)->second;
  return given.empty() ? options.codec : given;
}

Error refusal_to_compress(ErrorKind kind, const std::string& what) {
  return Error(kind, "ringdist: compress: " + what);
}

// In most codecs an element's bits depend on its place in a block. The op itself would fail with
// the same error, but only during training.
Error check_deterministic(const CompressionGroup& group, const std::string& argument,
                          const std::string& spec, const CompressionMethod& method) {
  if (!group.by_layout) return {};
  BucketPlan plan;
  method.add({0, group.min_compressed, 1}, plan);
  if (!plan.coded) return {};
  return refusal_to_compress(
      ErrorKind::kInvalidArgument,
      argument + "='" + spec +
          "': the group is of deterministic='layout', which takes uncompressed gradients only: in "
          "most codecs an element's bits depend on the block that it lies in, and no codec is "
          "excepted; accepted: none and powersgd:R, rules included");
}

Error check_options(const CompressionOptions& options, const CompressionGroup& group) {
  const auto check_one = [&](const std::string& argument, const std::string& codec) {
    // For "auto" a lossy candidate is checked, so that a deterministic group refuses it.
    const std::string& meant = codec == kAuto ? AutoCodec::candidates()[2] : codec;
    const auto made = make_compression_method(argument, meant, group.size, options.error_feedback);
    return made.ok() ? check_deterministic(group, argument, codec, *made.value()) : made.error();
  };
  if (Error error = check_one("codec", options.codec)) return error;
  for (const auto& [step, codec] : options.schedule)
    if (Error error = check_one("schedule[" + std::to_string(step) + "]", codec)) return error;
  return {};
}

}  // namespace ringdist
