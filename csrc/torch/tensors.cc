#include "torch/tensors.h"

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace ringdist {
namespace {

std::optional<DType> find_dtype(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::kFloat64;
    case at::kFloat:
      return DType::kFloat32;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    case at::kLong:
      return DType::kInt64;
    case at::kInt:
      return DType::kInt32;
    case at::kShort:
      return DType::kInt16;
    case at::kChar:
      return DType::kInt8;
    case at::kByte:
      return DType::kUInt8;
    case at::kBool:
      return DType::kBool;
    case at::kUInt16:
      return DType::kUInt16;
    case at::kUInt32:
      return DType::kUInt32;
    case at::kUInt64:
      return DType::kUInt64;
    case at::kComplexHalf:
      return DType::kComplex32;
    case at::kComplexFloat:
      return DType::kComplex64;
    case at::kComplexDouble:
      return DType::kComplex128;
    case at::kFloat8_e4m3fn:
      return DType::kFloat8E4M3FN;
    case at::kFloat8_e5m2:
      return DType::kFloat8E5M2;
    default:
      return std::nullopt;
  }
}

std::string dtype_names(DType last) {
  std::string out;
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (static_cast<DType>(i) != DType::kBytes)
      out += (i ? ", " : "") + std::string(dtype_name(static_cast<DType>(i)));
  return out;
}

Error invalid(ErrorKind kind, std::string_view op, const std::string& argument,
              const std::string& what) {
  return Error(kind, "ringdist: " + std::string(op) + ": " + argument + " " + what);
}

}  // namespace

Result<DType> to_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       bool reduces) {
  const auto dtype = find_dtype(tensor.scalar_type());
  if (dtype && (!reduces || is_reducible(*dtype))) return *dtype;
  return invalid(ErrorKind::kNotSupported, op, argument,
                 "is " + describe(tensor) + ", a dtype that cannot be " +
                     (reduces ? "reduced" : "sent") +
                     "; supported: " + dtype_names(reduces ? kLastReducible : DType::kFloat8E5M2));
}

std::string describe(const at::Tensor& tensor) {
  const auto dtype = find_dtype(tensor.scalar_type());
  std::string out = dtype ? std::string(dtype_name(*dtype)) : c10::toString(tensor.scalar_type());
  out += "[";
  for (int64_t i = 0; i < tensor.dim(); ++i)
    out += (i ? ", " : "") + std::to_string(tensor.size(i));
  return out + "]";
}

Error check_tensor(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                   bool written) {
  if (!tensor.defined())
    return invalid(ErrorKind::kInvalidArgument, op, argument, "is an undefined tensor");
  if (tensor.layout() != at::kStrided)
    return invalid(
        ErrorKind::kInvalidArgument, op, argument,
        "has an unsupported layout: " + c10::str(tensor.layout()) + "; it must be dense (strided)");
  if (!tensor.device().is_cpu())
    return invalid(ErrorKind::kNotSupported, op, argument,
                   "is on device " + tensor.device().str() + "; this build serves: cpu");
  for (int64_t i = 0; written && i < tensor.dim(); ++i)
    if (tensor.stride(i) == 0 && tensor.size(i) > 1)
      return invalid(ErrorKind::kInvalidArgument, op, argument,
                     "overlaps itself (an expanded tensor, dimension " + std::to_string(i) +
                         " has stride 0); pass a clone()");
  return {};
}

Error check_single(std::string_view op, const std::string& argument,
                   const std::vector<at::Tensor>& tensors, bool written) {
  if (tensors.size() != 1)
    return invalid(ErrorKind::kInvalidArgument, op, argument,
                   tensors.empty()
                       ? "requires non-empty tensor list: exactly one tensor, none given"
                       : "requires a single-element tensor list, " +
                             std::to_string(tensors.size()) + " tensors given");
  return check_tensor(op, argument, tensors[0], written);
}

Error check_same_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       const at::Tensor& like) {
  if (tensor.scalar_type() == like.scalar_type()) return {};
  return invalid(
      ErrorKind::kNotSupported, op, argument,
      "is " + describe(tensor) + ", an invalid tensor type: the input is " + describe(like));
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0 || !a.is_alias_of(b)) return false;
  const auto extent = [](const at::Tensor& t) {
    int64_t last = 0;
    for (int64_t i = 0; i < t.dim(); ++i) last += (t.size(i) - 1) * t.stride(i);
    const auto* begin = static_cast<const std::byte*>(t.const_data_ptr());
    return std::pair(begin, begin + (last + 1) * static_cast<int64_t>(t.element_size()));
  };
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

at::Tensor Staging::use(const at::Tensor& tensor, bool reads, bool writes, bool apart) {
  const at::Tensor plain = tensor.detach();  // the engine is no part of the autograd graph
  if (plain.is_contiguous() && !apart && !plain.is_conj() && !plain.is_neg()) return plain;
  at::Tensor ours =
      reads ? plain.clone(at::MemoryFormat::Contiguous) : at::empty(plain.sizes(), plain.options());
  if (writes) back_.emplace_back(plain, ours);
  return ours;
}

void Staging::finish() const {
  for (const auto& [theirs, ours] : back_) theirs.copy_(ours);
}

void append(Buffer& buffer, const at::Tensor& contiguous) {
  buffer.append(contiguous.data_ptr(), contiguous.numel());
}

}  // namespace ringdist
