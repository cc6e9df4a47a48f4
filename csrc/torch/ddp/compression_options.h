// How the gradients of a model are to be compressed, checked before there is a step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "compress/treatment.h"
#include "torch/backend.h"

namespace ringdist {

inline constexpr const char* kAuto = "auto";

struct CompressionOptions {
  std::string codec;
  int64_t warmup_steps = 0;                 // uncompressed, whatever the rules say
  std::map<int64_t, std::string> schedule;  // from that step on
  std::optional<bool> error_feedback;       // nullopt: as each codec has it by default
  double guard = 0;                         // GradientGuard's limit; 0: none
  int64_t measure_every = 0;                // steps between two relative errors; 0: never
};

// Whether the codec is "auto" at some step.
bool ever_auto(const CompressionOptions& options);
// Until it has chosen, "auto" leaves gradients alone.
std::string base_codec(const std::string& codec);

// Raises "ringdist: compress: <what>".
[[noreturn]] void refuse(ErrorKind kind, const std::string& what);
// Raise ValueError: a codec of the options; a treatment that a group of deterministic="layout" does
// not take, in which the bits of a sum depend on no place.
void check_options(const CompressionOptions& options, const ProcessGroupRing& group);
void check_deterministic(const ProcessGroupRing& group, const std::string& argument,
                         const std::string& spec, const Treatment& treatment);

}  // namespace ringdist
