// "powersgd:r": a parameter's gradient, seen as a matrix of its outermost dimension by all others,
// is averaged by its approximation of rank r. See compress/low_rank.h.
#pragma once

#include "torch/treatment.h"

namespace ringdist {

bool is_low_rank(std::string_view spec);

// Errors (kInvalidArgument) name `argument`: a rank that is not in 1..64.
Result<TreatmentPtr> make_low_rank_treatment(std::string_view argument, const std::string& spec,
                                             int size, std::optional<bool> feedback);

}  // namespace ringdist
