// The floating-point mode of a thread while it does arithmetic of ours: rounding to nearest,
// subnormal numbers kept. Users change it for their threads (torch.set_flush_denormal), and new
// threads begin with that of their maker; results must not depend on which thread computes them.
#pragma once

#include <fenv.h>

namespace ringdist {

// From here to the end of the scope, in this thread.
class FloatMode {
 public:
  FloatMode() {
    fegetmode(&before_);
    fesetmode(FE_DFL_MODE);
  }
  ~FloatMode() { fesetmode(&before_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  femode_t before_;
};

}  // namespace ringdist
