#include "torch/base/tensors.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <optional>
#include <utility>

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

// Returns a dtype to move a tensor that has none of its own. Packed dtypes, with several elements
// per byte, cannot be moved.
std::optional<DType> opaque_dtype(at::ScalarType type) {
  if (type == at::kQUInt4x2 || type == at::kQUInt2x4) return std::nullopt;
  switch (c10::elementSize(type)) {
    case 1:
      return DType::kBytes;
    case 2:
      return DType::kUInt16;
    case 4:
      return DType::kUInt32;
    case 8:
      return DType::kUInt64;
    case 16:
      return DType::kComplex128;
    default:
      return std::nullopt;
  }
}

// Returns the same bytes as numbers that ATen can copy in any layout.
at::Tensor copyable(const at::Tensor& tensor) {
  if (tensor.is_quantized() || find_dtype(tensor.scalar_type())) return tensor;
  if (tensor.element_size() == 1) return tensor.view(at::kByte);
  return tensor.element_size() == 2 ? tensor.view(at::kShort) : tensor;
}

// Returns the first address of a tensor and the one after its last element.
std::pair<const std::byte*, const std::byte*> extent(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

Error invalid(ErrorKind kind, std::string_view op, const std::string& argument,
              const std::string& what) {
  return Error(kind, "ringdist: " + std::string(op) + ": " + argument + " " + what);
}

// Reads the storage without checks, because data_ptr() of such tensors raises an exception for
// Python.
bool has_memory(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  if (!tensor.has_storage()) return false;
  return tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() != nullptr;
}

}  // namespace

Result<DType> to_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       ReduceOp reduce_op) {
  const at::ScalarType type = tensor.scalar_type();
  const auto dtype = find_dtype(type);
  if (reduce_op != ReduceOp::kNone) {
    if (dtype && is_reducible(*dtype, reduce_op)) return *dtype;
    return invalid(ErrorKind::kNotSupported, op, argument,
                   "is " + describe(tensor) + ", a dtype that cannot be reduced by " +
                       std::string(reduce_op_name(reduce_op)) +
                       "; supported: " + reducible_dtypes(reduce_op));
  }
  if (dtype) return *dtype;
  if (const auto opaque = opaque_dtype(type)) return *opaque;
  return invalid(ErrorKind::kNotSupported, op, argument,
                 "is " + describe(tensor) +
                     ", a packed dtype that cannot be sent; supported: all dtypes of at least a "
                     "byte an element");
}

Error invalid_argument(std::string_view op, const std::string& what) {
  return Error(ErrorKind::kInvalidArgument, "ringdist: " + std::string(op) + ": " + what);
}

std::string describe(const at::Tensor& tensor) {
  const auto dtype = find_dtype(tensor.scalar_type());
  std::string out = dtype ? std::string(dtype_name(*dtype)) : c10::toString(tensor.scalar_type());
  out += '[';
  for (int64_t i = 0; i < tensor.dim(); ++i)
    out += (i ? ", " : "") + std::to_string(tensor.size(i));
  return out + "]";
}

Error check_on_cpu(std::string_view op, const std::string& argument, const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return {};
  return invalid(ErrorKind::kNotSupported, op, argument,
                 "is on device " + tensor.device().str() + "; it must be on the CPU");
}

Error check_device(std::string_view op, const std::string& argument, const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  // Types of other vendors are allowed, too: CallSubmitter checks if this process can run ops on
  // them.
  if (device.is_cpu() || device.is_cuda() || device.is_privateuseone()) return {};
  return invalid(ErrorKind::kNotSupported, op, argument,
                 "is on device " + device.str() + "; supported: cpu, cuda");
}

Error check_tensor(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                   bool written) {
  if (!tensor.defined())
    return invalid(ErrorKind::kInvalidArgument, op, argument, "is an undefined tensor");
  if (tensor.layout() != at::kStrided)
    return invalid(
        ErrorKind::kInvalidArgument, op, argument,
        "has an unsupported layout: " + c10::str(tensor.layout()) + "; it must be dense (strided)");
  if (Error error = check_device(op, argument, tensor)) return error;
  if (!has_memory(tensor))
    return invalid(ErrorKind::kNotSupported, op, argument,
                   "has no memory of its own, as a DTensor or a FakeTensor; pass the tensor that "
                   "it stands for (DTensor: to_local())");
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

Error check_list(std::string_view op, const std::string& argument,
                 const std::vector<at::Tensor>& tensors, bool written) {
  if (tensors.empty())
    return invalid(ErrorKind::kInvalidArgument, op, argument,
                   "requires non-empty tensor list: none given");
  for (size_t i = 0; i < tensors.size(); ++i)
    if (Error error = check_tensor(op, argument + index(i), tensors[i], written)) return error;
  return {};
}

Error check_same_size(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                      const std::string& other, const at::Tensor& like) {
  if (tensor.numel() == like.numel()) return {};
  return invalid_argument(op, "invalid tensor size: " + argument + " is " + describe(tensor) +
                                  ", but " + other + " is " + describe(like));
}

Error check_same_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       const at::Tensor& like) {
  if (tensor.scalar_type() == like.scalar_type()) return {};
  return invalid(
      ErrorKind::kNotSupported, op, argument,
      "is " + describe(tensor) + ", an invalid tensor type: the input is " + describe(like));
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

bool share_memory(const at::Tensor& a, const std::vector<at::Tensor>& others) {
  return std::ranges::any_of(others, [&](const at::Tensor& b) { return share_memory(a, b); });
}

std::vector<bool> overlapping(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1) return {false};
  struct Span {
    const std::byte* begin;
    const std::byte* end;
    size_t index;
  };
  std::vector<Span> spans;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].numel() == 0) continue;
    const auto [begin, end] = extent(tensors[i]);
    spans.push_back({begin, end, i});
  }
  std::ranges::sort(spans, {}, &Span::begin);
  std::vector<bool> out(tensors.size(), false);
  // If a span overlaps any before, it overlaps the one that ends last. Another one that it overlaps
  // has been found to overlap that one before.
  const Span* reach = nullptr;  // the span among those before that ends last
  for (const Span& span : spans) {
    if (reach != nullptr && span.begin < reach->end) out[span.index] = out[reach->index] = true;
    if (reach == nullptr || span.end > reach->end) reach = &span;
  }
  return out;
}

at::Tensor Staging::use(const at::Tensor& tensor, bool reads, bool writes, bool apart) {
  // Conjugated and negated views are contiguous, but their bytes are not their values.
  if (tensor.is_contiguous() && !apart && !tensor.is_conj() && !tensor.is_neg()) return tensor;
  const at::Tensor theirs = copyable(tensor.detach());  // copies are no part of autograd's graph
  at::Tensor ours = at::empty_like(theirs, theirs.options(), at::MemoryFormat::Contiguous);
  if (reads) ours.copy_(theirs);
  if (writes) back_.emplace_back(theirs, ours);
  return ours;
}

void Staging::add(Staging other) {
  back_.insert(back_.end(), other.back_.begin(), other.back_.end());
}

void write_result(const at::Tensor& tensor, const at::Tensor& result) {
  const c10::NoGradGuard no_grad;
  std::optional<c10::InferenceMode> mode;
  if (tensor.is_inference()) mode.emplace();
  tensor.copy_(result);
}

void Staging::finish() const {
  for (const auto& [theirs, ours] : back_) write_result(theirs, ours);
}

void append(Buffer& buffer, const at::Tensor& contiguous) {
  buffer.append(contiguous.data_ptr(), contiguous.numel());
}

}  // namespace ringdist
