#include "kernel/rotated_sign.h"

namespace ringdist {

const RotatedSignLoops* rotated_sign_loops() {
  static const RotatedSignLoops* const best =
      rotated_sign_avx512() != nullptr ? rotated_sign_avx512() : rotated_sign_avx2();
  return best;
}

}  // namespace ringdist
