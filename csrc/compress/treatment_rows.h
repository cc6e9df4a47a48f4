// The rows of treatment_registry.cc, each from the file of its treatment.
#pragma once

#include "compress/treatment.h"

namespace ringdist {

TreatmentRow codec_treatment();
TreatmentRow low_rank_treatment();

}  // namespace ringdist
