// The floating-point mode of a thread while it does arithmetic of ours: rounding to nearest,
// subnormal numbers kept. Users change it for their threads (torch.set_flush_denormal), and new
// threads begin with that of their maker; results must not depend on which thread computes them.
#pragma once

#include <fenv.h>

namespace ringdist {

// From here to the end of the scope, in this thread.
class ScopedFloatMode {
 public:
  ScopedFloatMode() {
    fegetmode(&before_);
    fesetmode(FE_DFL_MODE);
  }
  ~ScopedFloatMode() { fesetmode(&before_); }
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
  femode_t before_;
};

}  // namespace ringdist
