// DDP lays the elements of a gradient into its bucket as they lie in the parameter's memory, if
// that has no gaps and no overlaps (channels_last, a transposed weight), row-major otherwise. A
// residual has that order; a checkpoint has row-major values, whatever the memory of the model that
// loads it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ringdist {

// How one parameter lies. Immutable: any thread.
class MemoryOrder {
 public:
  // Row-major.
  explicit MemoryOrder(std::vector<int64_t> sizes);
  // In elements, one for each size: without gaps and overlaps.
  MemoryOrder(std::vector<int64_t> sizes, std::vector<int64_t> strides);

  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t count() const;
  // The size of the dimension that varies least in memory, those of size 1 aside: the rows of the
  // parameter's matrix. 1 for one element.
  int64_t rows() const;

  // count() values of one in the order of the other.
  std::vector<float> to_row_major(std::span<const float> in_memory) const;
  std::vector<float> from_row_major(std::span<const float> row_major) const;

 private:
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
};

}  // namespace ringdist
