// Search for values that are not a number. Any thread.
#pragma once

#include <cstdint>

#include "base/buffers.h"
#include "base/dtype.h"

namespace ringdist {

// Returns the index of the first element that is a NaN, or of a complex number with a NaN, and -1
// if there is none. `values` holds whole elements. Dtypes that are no floating-point numbers have
// none.
int64_t find_nan(DType dtype, ConstBytes values);

}  // namespace ringdist
