// What Python raises; apart from bind.h, because it binds no class and no function.
#pragma once

namespace ringdist {

// Translates the exceptions of arguments, and lets waits hear of Python's signals.
void bind_errors();

}  // namespace ringdist
