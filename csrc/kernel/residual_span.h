// What a codec is given for error feedback: where to read what is owed, and where to leave what
// will be owed. The two may be the same memory, but must not overlap otherwise.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

namespace ringdist {

struct ResidualSpan {
  const float* from = nullptr;
  float* to = nullptr;
  size_t count = 0;

  ResidualSpan() = default;  // empty: no error feedback
  ResidualSpan(const float* from, float* to, size_t count) : from(from), to(to), count(count) {}
  // In place.
  template <typename Floats>
    requires std::convertible_to<Floats&, std::span<float>>
  ResidualSpan(Floats&& both) {
    const std::span<float> values(both);
    *this = {values.data(), values.data(), values.size()};
  }

  bool empty() const { return count == 0; }
  ResidualSpan subspan(size_t at, size_t n) const {
    return empty() ? *this : ResidualSpan(from + at, to + at, n);
  }
  // What is owed stays.
  void keep() const {
    if (from != to) std::copy_n(from, count, to);
  }
};

}  // namespace ringdist
