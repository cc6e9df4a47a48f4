// Libraries of this package that are loaded when they are first needed: each lies beside the binary
// that this code is in.
#pragma once

#include <string>

#include "base/error.h"

namespace ringdist {

// The address of `symbol`, after loading `library` ("libx.so") if it is not yet. It stays loaded:
// threads and fork handlers of what it links outlive any use. Error (kSystem): there is none, it
// cannot be loaded, or it lacks the symbol. Any thread.
Result<void*> load_bundled_symbol(const std::string& library, const char* symbol);

}  // namespace ringdist
