#include "compress/bucket.h"

#include <functional>
#include <numeric>

#include "base/check.h"

namespace ringdist {
namespace {

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> out(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) out[d - 1] = out[d] * sizes[d];
  return out;
}

// Calls fn with each element's offset in memory, in row-major order.
template <typename Fn>
void for_elements(std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t at,
                  Fn& fn) {
  if (sizes.empty()) return fn(at);
  for (int64_t i = 0; i < sizes[0]; ++i)
    for_elements(sizes.subspan(1), strides.subspan(1), at + i * strides[0], fn);
}

}  // namespace

MemoryOrder::MemoryOrder(std::vector<int64_t> sizes)
    : sizes_(std::move(sizes)), strides_(row_major_strides(sizes_)) {}

MemoryOrder::MemoryOrder(std::vector<int64_t> sizes, std::vector<int64_t> strides)
    : sizes_(std::move(sizes)), strides_(std::move(strides)) {
  check(sizes_.size() == strides_.size(), "as many strides as sizes");
}

int64_t MemoryOrder::count() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{1}, std::multiplies<>());
}

int64_t MemoryOrder::rows() const {
  int64_t rows = 1;
  int64_t furthest = -1;
  for (size_t d = 0; d < sizes_.size(); ++d)
    if (sizes_[d] > 1 && strides_[d] > furthest) {
      rows = sizes_[d];
      furthest = strides_[d];
    }
  return rows;
}

std::vector<float> MemoryOrder::to_row_major(std::span<const float> in_memory) const {
  check(std::ssize(in_memory) == count(), "values of another parameter");
  std::vector<float> out;
  out.reserve(in_memory.size());
  const auto copy = [&](int64_t at) { out.push_back(in_memory[static_cast<size_t>(at)]); };
  for_elements(sizes_, strides_, 0, copy);
  return out;
}

std::vector<float> MemoryOrder::from_row_major(std::span<const float> row_major) const {
  check(std::ssize(row_major) == count(), "values of another parameter");
  std::vector<float> out(row_major.size());
  size_t next = 0;
  const auto copy = [&](int64_t at) { out[static_cast<size_t>(at)] = row_major[next++]; };
  for_elements(sizes_, strides_, 0, copy);
  return out;
}

}  // namespace ringdist
