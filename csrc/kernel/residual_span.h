// Residuals as arguments of a codec. `from` is the residual that is added to the values, and `to`
// receives the new residual. Both may be the same memory, but must not overlap otherwise. The
// memory is not owned. A value type; any thread may copy it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

namespace ringdist {

// Residuals of `count` elements; empty without error feedback.
struct ResidualSpan {
  const float* from = nullptr;
  float* to = nullptr;
  size_t count = 0;

  ResidualSpan() = default;  // empty: no error feedback
  ResidualSpan(const float* from, float* to, size_t count) : from(from), to(to), count(count) {}
  // Updates the residuals in place. The conversion is implicit, so that callers can pass a vector
  // or a span of floats.
  template <typename Floats>
    requires std::convertible_to<Floats&, std::span<float>>
  ResidualSpan(Floats&& both) {  // NOLINT(google-explicit-constructor)
    const std::span<float> values(both);
    *this = {values.data(), values.data(), values.size()};
  }

  bool empty() const { return count == 0; }
  // Returns the residuals of the elements [at, at + n); an empty span stays empty.
  ResidualSpan subspan(size_t at, size_t n) const {
    return empty() ? *this : ResidualSpan(from + at, to + at, n);
  }
  // Keeps the residual unchanged: copies `from` to `to`.
  void keep() const {
    if (from != to) std::copy_n(from, count, to);
  }
};

}  // namespace ringdist
