#include "kernel/reference.h"

#include <array>
#include <limits>
#include <type_traits>

namespace ringdist::reference {
namespace {

bool is_nan(double x) { return x != x; }

template <typename T>
std::vector<std::byte> bytes_of(T value) {
  if constexpr (std::is_floating_point_v<T>)
    if (is_nan(value)) value = std::numeric_limits<T>::quiet_NaN();
  std::vector<std::byte> out(sizeof(T));
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

// Returns the smaller or larger of two floats by the rules of reduce().
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
    if (op == ReduceOp::kProduct)
      out = out * x;
    else if (op == ReduceOp::kMin || op == ReduceOp::kMax)
      out = extreme(out, x, op == ReduceOp::kMax);
    else
      out = out + x;
  }
  return op == ReduceOp::kAvg ? out / static_cast<T>(divisor) : out;
}

// Computes an average exactly in 128 bits. Other ops truncate to T after each step.
template <typename T>
T fold_integers(ReduceOp op, const std::vector<T>& operands, int64_t divisor) {
  if (op == ReduceOp::kAvg) {
    __int128 sum = 0;
    for (const T x : operands) sum += x;
    return static_cast<T>(sum / divisor);
  }
  T out = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    const T x = operands[i];
    const auto a = static_cast<unsigned __int128>(out);
    const auto b = static_cast<unsigned __int128>(x);
    if (op == ReduceOp::kProduct)
      out = static_cast<T>(a * b);
    else if (op == ReduceOp::kMin || op == ReduceOp::kMax)
      out = (op == ReduceOp::kMax) == (out > x) ? out : x;
    else if (op == ReduceOp::kBand)
      out = static_cast<T>(a & b);
    else if (op == ReduceOp::kBor)
      out = static_cast<T>(a | b);
    else if (op == ReduceOp::kBxor)
      out = static_cast<T>(a ^ b);
    else
      out = static_cast<T>(a + b);
  }
  return out;
}

using Operands = std::vector<const std::byte*>;

std::vector<std::byte> reduce_bool(ReduceOp op, const Operands& operands) {
  size_t set = 0;
  for (const std::byte* at : operands) set += *at != std::byte{0};
  const bool all = set == operands.size();
  if (op == ReduceOp::kBxor) return bytes_of<uint8_t>(set % 2);
  const bool any = op == ReduceOp::kSum || op == ReduceOp::kMax || op == ReduceOp::kBor;
  return bytes_of<uint8_t>(any ? set > 0 : all);
}

template <typename T>
std::vector<std::byte> reduce_plain(ReduceOp op, const Operands& operands, int64_t divisor) {
  std::vector<T> values;
  for (const std::byte* at : operands) values.push_back(load<T>(at));
  if constexpr (std::is_floating_point_v<T>)
    return bytes_of(fold_floats(op, values, divisor));
  else
    return bytes_of(fold_integers(op, values, divisor));
}

std::vector<std::byte> reduce_half(ReduceOp op, const Operands& operands, int64_t divisor,
                                   int exponent_bits, int mantissa_bits) {
  std::vector<float> values;
  for (const std::byte* at : operands)
    values.push_back(static_cast<float>(decode(load<uint16_t>(at), exponent_bits, mantissa_bits)));
  return bytes_of(encode(fold_floats(op, values, divisor), exponent_bits, mantissa_bits));
}

std::vector<std::byte> reduce_float8(DType dtype, ReduceOp op, const Operands& operands,
                                     int64_t divisor) {
  std::vector<float> values;
  for (const std::byte* at : operands)
    values.push_back(static_cast<float>(decode_float8(dtype, load<uint8_t>(at))));
  return bytes_of(encode_float8(dtype, fold_floats(op, values, divisor)));
}

template <typename T>
std::array<T, 2> multiply(const std::vector<std::array<T, 2>>& factors) {
  std::array<T, 2> out = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) {
    const auto [a, b] = out;
    const auto [c, d] = factors[i];
    out = {a * c - b * d, a * d + b * c};
  }
  return out;
}

std::vector<std::byte> multiply_halves(const Operands& operands) {
  std::vector<std::array<float, 2>> values;
  for (const std::byte* at : operands)
    values.push_back({static_cast<float>(decode(load<uint16_t>(at), 5, 10)),
                      static_cast<float>(decode(load<uint16_t>(at + 2), 5, 10))});
  const auto [real, imaginary] = multiply(values);
  return bytes_of(std::array<uint16_t, 2>{encode(real, 5, 10), encode(imaginary, 5, 10)});
}

template <typename T>
std::vector<std::byte> multiply_complex(const Operands& operands) {
  std::vector<std::array<T, 2>> values;
  for (const std::byte* at : operands) values.push_back(load<std::array<T, 2>>(at));
  const auto [real, imaginary] = multiply(values);
  std::vector<std::byte> out = bytes_of(real);
  const std::vector<std::byte> second = bytes_of(imaginary);
  out.insert(out.end(), second.begin(), second.end());
  return out;
}

// Reduces by SUM or AVG: the real and imaginary parts separately, each as a `part`.
std::vector<std::byte> reduce_complex(DType part, ReduceOp op, const Operands& operands,
                                      int64_t divisor) {
  if (op == ReduceOp::kProduct) {
    if (part == DType::kFloat16) return multiply_halves(operands);
    return part == DType::kFloat32 ? multiply_complex<float>(operands)
                                   : multiply_complex<double>(operands);
  }
  Operands imaginary;
  for (const std::byte* at : operands) imaginary.push_back(at + dtype_size(part));
  std::vector<std::byte> out = reduce_one(part, op, operands, divisor);
  const std::vector<std::byte> second = reduce_one(part, op, imaginary, divisor);
  out.insert(out.end(), second.begin(), second.end());
  return out;
}

}  // namespace

double decode_float8(DType dtype, uint8_t code) {
  // A float8_e5m2 is an fp16 without its last eight bits.
  if (dtype == DType::kFloat8E5M2) return decode(static_cast<uint16_t>(code << 8), 5, 10);
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t encode_float8(DType dtype, double value) {
  if (is_nan(value)) return 0x7f;
  const bool e5m2 = dtype == DType::kFloat8E5M2;
  // In e5m2, values round to inf from the midpoint between its largest value and 2^16 on.
  const uint8_t largest = e5m2 ? 0x7b : 0x7e;
  const double magnitude = std::fabs(value);
  // Non-negative codes are ordered like their values, so this finds the last one that is not
  // above.
  uint8_t nearest = 0;
  for (uint8_t step = 64; step > 0; step >>= 1)
    if (nearest + step <= largest &&
        decode_float8(dtype, static_cast<uint8_t>(nearest + step)) <= magnitude)
      nearest = static_cast<uint8_t>(nearest + step);
  if (nearest < largest) {
    const double to_low = magnitude - decode_float8(dtype, nearest);
    const double to_high = decode_float8(dtype, static_cast<uint8_t>(nearest + 1)) - magnitude;
    if (to_high < to_low || (to_high == to_low && nearest % 2 == 1)) ++nearest;
  }
  if (e5m2 && magnitude >= 61440) nearest = 0x7c;
  return static_cast<uint8_t>(nearest | (std::signbit(value) ? 0x80 : 0));
}

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
  // Non-negative floats are ordered like their bits, so this finds the last one that is not above.
  int below = 0;
  for (int step = 1 << 14; step > 0; step >>= 1)
    if (below + step < infinity &&
        decode(static_cast<uint16_t>(below + step), exponent_bits, mantissa_bits) <= magnitude)
      below += step;
  const double low = decode(static_cast<uint16_t>(below), exponent_bits, mantissa_bits);
  // The neighbour above the largest value is where the exponent overflows.
  const double high = below + 1 < infinity
                          ? decode(static_cast<uint16_t>(below + 1), exponent_bits, mantissa_bits)
                          : std::ldexp(1.0, 1 << (exponent_bits - 1));
  if (magnitude >= high) return static_cast<uint16_t>(sign | infinity);
  const double to_low = magnitude - low;
  const double to_high = high - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && (below & 1) != 0);
  return static_cast<uint16_t>(sign | (below + (up ? 1 : 0)));
}

std::vector<std::byte> reduce_one(DType dtype, ReduceOp op, const Operands& operands,
                                  int64_t divisor) {
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
    case DType::kUInt16:
      return reduce_plain<uint16_t>(op, operands, divisor);
    case DType::kUInt32:
      return reduce_plain<uint32_t>(op, operands, divisor);
    case DType::kUInt64:
      return reduce_plain<uint64_t>(op, operands, divisor);
    case DType::kBool:
      return reduce_bool(op, operands);
    case DType::kComplex32:
      return reduce_complex(DType::kFloat16, op, operands, divisor);
    case DType::kComplex64:
      return reduce_complex(DType::kFloat32, op, operands, divisor);
    case DType::kComplex128:
      return reduce_complex(DType::kFloat64, op, operands, divisor);
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
      return reduce_float8(dtype, op, operands, divisor);
    default:
      return {};
  }
}

}  // namespace ringdist::reference
