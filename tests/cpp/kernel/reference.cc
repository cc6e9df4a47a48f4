#include "kernel/reference.h"

#include <limits>
#include <type_traits>

namespace ringdist::reference {
namespace {

bool is_nan(double x) { return x != x; }

template <typename T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> out(sizeof(T));
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

// The smaller or larger of two floats by the rules of reduce().
template <typename T>
T extreme(T a, T b, bool max) {
  if (is_nan(a) || is_nan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == 0 && b == 0) return std::signbit(a) == max ? b : a;
  return (a < b) == max ? b : a;
}

template <typename T>
T fold_floats(ReduceOp op, const std::vector<T>& operands, int64_t divisor) {
  T out = operands[0];
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) out = extreme(out, out, op == ReduceOp::kMax);
  for (size_t i = 1; i < operands.size(); ++i) {
    const T x = operands[i];
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg)
      out = out + x;
    else if (op == ReduceOp::kProduct)
      out = out * x;
    else
      out = extreme(out, x, op == ReduceOp::kMax);
  }
  return op == ReduceOp::kAvg ? out / static_cast<T>(divisor) : out;
}

// In 128 bits, cut to T after each step.
template <typename T>
T fold_integers(ReduceOp op, const std::vector<T>& operands, int64_t divisor) {
  T out = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    const auto a = static_cast<__int128>(out);
    const auto b = static_cast<__int128>(operands[i]);
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg)
      out = static_cast<T>(a + b);
    else if (op == ReduceOp::kProduct)
      out = static_cast<T>(a * b);
    else
      out = static_cast<T>((op == ReduceOp::kMax) == (a > b) ? a : b);
  }
  return op == ReduceOp::kAvg ? static_cast<T>(static_cast<__int128>(out) / divisor) : out;
}

template <typename T>
std::vector<std::byte> reduce_plain(ReduceOp op, const std::vector<const std::byte*>& operands,
                                    int64_t divisor) {
  std::vector<T> values;
  for (const std::byte* at : operands) values.push_back(load<T>(at));
  if constexpr (std::is_floating_point_v<T>)
    return bytes_of(fold_floats(op, values, divisor));
  else
    return bytes_of(fold_integers(op, values, divisor));
}

std::vector<std::byte> reduce_half(ReduceOp op, const std::vector<const std::byte*>& operands,
                                   int64_t divisor, int exponent_bits, int mantissa_bits) {
  std::vector<float> values;
  for (const std::byte* at : operands)
    values.push_back(static_cast<float>(decode(load<uint16_t>(at), exponent_bits, mantissa_bits)));
  return bytes_of(encode(fold_floats(op, values, divisor), exponent_bits, mantissa_bits));
}

}  // namespace

double decode(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int all_ones = (1 << exponent_bits) - 1;
  const int exponent = (bits >> mantissa_bits) & all_ones;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == all_ones)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  const int implicit = exponent == 0 ? 0 : 1 << mantissa_bits;
  const int scale = (exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
  return sign * std::ldexp(mantissa + implicit, scale);
}

uint16_t encode(double value, int exponent_bits, int mantissa_bits) {
  const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  if (is_nan(value)) return static_cast<uint16_t>(infinity | 1 << (mantissa_bits - 1));
  const double magnitude = std::fabs(value);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  // Non-negative floats are ordered as their bits: find the last that is not above.
  int below = 0;
  for (int step = 1 << 14; step > 0; step >>= 1)
    if (below + step < infinity &&
        decode(static_cast<uint16_t>(below + step), exponent_bits, mantissa_bits) <= magnitude)
      below += step;
  const double low = decode(static_cast<uint16_t>(below), exponent_bits, mantissa_bits);
  // Above the largest, the next one would be where the exponent overflows to.
  const double high = below + 1 < infinity
                          ? decode(static_cast<uint16_t>(below + 1), exponent_bits, mantissa_bits)
                          : std::ldexp(1.0, 1 << (exponent_bits - 1));
  if (magnitude >= high) return static_cast<uint16_t>(sign | infinity);
  const double to_low = magnitude - low;
  const double to_high = high - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && (below & 1) != 0);
  return static_cast<uint16_t>(sign | (below + (up ? 1 : 0)));
}

std::vector<std::byte> reduce_one(DType dtype, ReduceOp op,
                                  const std::vector<const std::byte*>& operands, int64_t divisor) {
  switch (dtype) {
    case DType::kFloat64:
      return reduce_plain<double>(op, operands, divisor);
    case DType::kFloat32:
      return reduce_plain<float>(op, operands, divisor);
    case DType::kBFloat16:
      return reduce_half(op, operands, divisor, 8, 7);
    case DType::kFloat16:
      return reduce_half(op, operands, divisor, 5, 10);
    case DType::kInt64:
      return reduce_plain<int64_t>(op, operands, divisor);
    case DType::kInt32:
      return reduce_plain<int32_t>(op, operands, divisor);
    case DType::kInt16:
      return reduce_plain<int16_t>(op, operands, divisor);
    case DType::kInt8:
      return reduce_plain<int8_t>(op, operands, divisor);
    case DType::kUInt8:
      return reduce_plain<uint8_t>(op, operands, divisor);
    default:
      return {};
  }
}

}  // namespace ringdist::reference
