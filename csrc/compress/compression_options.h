// How the gradients of a model are to be compressed, checked before there is a step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "compress/compression_method.h"

namespace ringdist {

inline constexpr const char* kAuto = "auto";

struct CompressionOptions {
  std::string codec;
  int64_t warmup_steps = 0;                 // uncompressed, whatever the rules say
  std::map<int64_t, std::string> schedule;  // from that step on
  std::optional<bool> error_feedback;       // nullopt: as each codec has it by default
  double guard = 0;                         // GradientClipper's limit; 0: none
  int64_t measure_every = 0;                // steps between two relative errors; 0: never
};

// What options are checked against, and sessions built for.
struct CompressionGroup {
  int size = 1;
  int rank = 0;
  bool by_layout = false;      // deterministic="layout": the bits of a sum depend on no place
  int64_t min_compressed = 0;  // elements; parameters that nobody told of have at least so many
};

// Whether the codec is "auto" at some step.
bool ever_auto(const CompressionOptions& options);
// Until it has chosen, "auto" leaves gradients alone.
std::string base_codec(const std::string& codec);
// Of a step: by the schedule, else `given` ("": none), else the options' own.
std::string codec_at(const CompressionOptions& options, int64_t step, const std::string& given);

// "ringdist: compress: <what>".
Error refusal_to_compress(ErrorKind kind, const std::string& what);
// Errors (kInvalidArgument): a codec of the options; a treatment that a group of
// deterministic="layout" does not take.
Error check_options(const CompressionOptions& options, const CompressionGroup& group);
Error check_deterministic(const CompressionGroup& group, const std::string& argument,
                          const std::string& spec, const CompressionMethod& method);

}  // namespace ringdist
