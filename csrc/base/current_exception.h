// What was thrown where nothing should be: there was no memory, or no thread.
#pragma once

#include "base/error.h"

namespace ringdist {

// Within a catch block: what was caught, as an Error. Where there is no memory to say it, one that
// was made while there was.
Error current_exception_error() noexcept;

}  // namespace ringdist
