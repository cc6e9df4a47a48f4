// Loader for libraries of this package that are loaded when they are first needed. They lie in the
// directory of the binary that contains this code.
#pragma once

#include <string>

#include "base/error.h"

namespace ringdist {

// Loads `library` ("libx.so") if it is not loaded yet, and returns the address of `symbol` in it.
// The library stays loaded, because threads and fork handlers of its dependencies outlive any use.
// Any thread. Error: kSystem, if the library does not exist, cannot be loaded or lacks the symbol.
Result<void*> load_bundled_symbol(const std::string& library, const char* symbol);

}  // namespace ringdist
