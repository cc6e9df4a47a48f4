// Options of gradient compression, and their checks. Options are checked when a GradientCompressor
// is created, so that errors appear before the first step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "compress/compression_method.h"

namespace ringdist {

// Name of the codec that is chosen by measurement (compress/auto_codec.h).
inline constexpr const char* kAuto = "auto";

// Options of one GradientCompressor.
struct CompressionOptions {
  // Spec of the codec, as make_compression_method() takes it, or "auto".
  std::string codec;
  int64_t warmup_steps = 0;  // first steps, sent uncompressed; they override all rules
  std::map<int64_t, std::string> schedule;  // codec from that step on
  std::optional<bool> error_feedback;       // nullopt for the default of each codec
  double guard = 0;                         // limit of GradientClipper; 0 for none
  int64_t measure_every = 0;  // steps between two measurements of the relative error; 0 for never
};

// Properties of the group that gradients are averaged over. Options are checked against them.
struct CompressionGroup {
  int size = 1;
  int rank = 0;
  // deterministic="layout": the bits of a sum must not depend on an element's place.
  bool by_layout = false;
  // Elements. Smaller parameters stay uncompressed if add_parameter() was not called for them.
  int64_t min_compressed = 0;
};

// Returns true if the codec is "auto" at some step.
bool ever_auto(const CompressionOptions& options);
// Returns the codec that is in use until "auto" has chosen, which is "none". Returns any other
// codec unchanged.
std::string base_codec(const std::string& codec);
// Returns the codec of a step. The entry of the schedule with the latest step up to this one comes
// first, then `given` unless it is empty, and then the codec of the options.
std::string codec_at(const CompressionOptions& options, int64_t step, const std::string& given);

// Returns an error with the text "ringdist: compress: <what>".
Error refusal_to_compress(ErrorKind kind, const std::string& what);
// Checks all codecs of the options. Error kInvalidArgument: a codec is invalid, or the group is
// deterministic="layout" and the codec is not allowed there.
//
// check_deterministic() does the latter check for one method; `argument` and `spec` are for its
// message.
Error check_options(const CompressionOptions& options, const CompressionGroup& group);
Error check_deterministic(const CompressionGroup& group, const std::string& argument,
                          const std::string& spec, const CompressionMethod& method);

}  // namespace ringdist
