// Shape of a matrix of gradients and of its low-rank factors (kernel/low_rank.h).
#pragma once

#include <cstdint>

namespace ringdist {

// `rank` is the number of columns of each factor.
struct MatrixShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t rank = 0;

  int64_t count() const { return rows * columns; }
  int64_t left() const { return rows * rank; }      // elements of a factor over the rows
  int64_t right() const { return columns * rank; }  // elements of a factor over the columns
};

}  // namespace ringdist
