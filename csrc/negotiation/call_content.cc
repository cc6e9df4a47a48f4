#include "negotiation/call_content.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/serialize.h"

namespace ringdist {
namespace {

std::string as_text(std::vector<std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string format_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

std::string format(const CallContent::Tensor& tensor) {
  std::string out = std::string(dtype_name(tensor.dtype)) + "[";
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    out += i > 0 ? ", " : "";
    out += tensor.shape[i] == CallContent::kAny ? "*" : std::to_string(tensor.shape[i]);
  }
  return out + "]";
}

// Formats a grouped call by its first tensors.
std::string format(const std::vector<CallContent::Tensor>& tensors) {
  constexpr size_t kNamed = 3;
  std::string out;
  for (size_t i = 0; i < tensors.size() && i < kNamed; ++i)
    out += (i > 0 ? " " : "") + format(tensors[i]);
  if (tensors.size() > kNamed) out += " and " + std::to_string(tensors.size() - kNamed) + " more";
  return out;
}

template <typename T>
ElementBytes element(T value) {
  ElementBytes out{};
  std::memcpy(out.data(), &value, sizeof(value));
  return out;
}

// Neutral elements of a dtype.
template <typename T>
struct Neutral {
  T most, least, one;
};

template <typename T>
ElementBytes of(ReduceOp op, const Neutral<T>& neutral) {
  switch (traits_of(op).neutral) {
    case NeutralElement::kZero:
      return {};
    case NeutralElement::kOne:
      return element(neutral.one);
    case NeutralElement::kLeast:
      return element(neutral.least);
    case NeutralElement::kMost:
      return element(neutral.most);
  }
  return {};
}

template <typename T>
ElementBytes of_number(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity)
    return of<T>(op, {Limits::infinity(), -Limits::infinity(), 1});
  return of<T>(op, {Limits::max(), Limits::lowest(), 1});
}

// Returns the neutral element of a reduction in Horovod's API, with which a joined rank's memory is
// filled. Types that C++ lacks are given by their bits.
ElementBytes neutral(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kFloat64:
      return of_number<double>(op);
    case DType::kFloat32:
    case DType::kComplex64:  // 1 + 0i for PRODUCT, as complex dtypes have no order
      return of_number<float>(op);
    case DType::kComplex128:
      return of_number<double>(op);
    case DType::kBFloat16:
      return of<uint16_t>(op, {0x7f80, 0xff80, 0x3f80});
    case DType::kFloat16:
    case DType::kComplex32:
      return of<uint16_t>(op, {0x7c00, 0xfc00, 0x3c00});
    case DType::kFloat8E4M3FN:
      // it has no infinity, so its largest values are used
      return of<uint8_t>(op, {0x7e, 0xfe, 0x38});
    case DType::kFloat8E5M2:
      return of<uint8_t>(op, {0x7c, 0xfc, 0x3c});
    case DType::kInt64:
      return of_number<int64_t>(op);
    case DType::kInt32:
      return of_number<int32_t>(op);
    case DType::kInt16:
      return of_number<int16_t>(op);
    case DType::kInt8:
      return of_number<int8_t>(op);
    case DType::kUInt8:
    case DType::kBytes:
      return of_number<uint8_t>(op);
    case DType::kBool:
      return of<uint8_t>(op, {1, 0, 1});
    case DType::kUInt16:
      return of_number<uint16_t>(op);
    case DType::kUInt32:
      return of_number<uint32_t>(op);
    case DType::kUInt64:
      return of_number<uint64_t>(op);
  }
  return {};
}

std::shared_ptr<std::vector<std::byte>> filled(int64_t count, size_t width,
                                               const ElementBytes& value) {
  auto out = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(count) * width);
  for (size_t at = 0; at < out->size(); at += width)
    std::memcpy(out->data() + at, value.data(), width);
  return out;
}

// Returns an allreduce over tensors of one dtype with these counts.
Result<OpRequest> allreduce_of(DType dtype, const CallContent& call,
                               const std::vector<int64_t>& counts, const FillOnDevice& on_device) {
  OpRequest out;
  out.kind = Collective::kAllreduce;
  out.dtype = dtype;
  out.reduce_op = call.reduce_op;
  out.count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const size_t width = dtype_size(dtype);
  const ElementBytes fill = neutral(dtype, call.reduce_op);
  std::byte* at = nullptr;
  if (call.where == CallContent().where) {
    auto memory = filled(out.count, width, fill);
    at = memory->data();
    out.keep_alive = std::move(memory);
  } else if (on_device) {
    auto memory = on_device(out.count, width, fill);
    if (!memory.ok()) return memory.error();
    at = memory.value().data;
    out.keep_alive = std::move(memory.value().keep);
    out.device_stream = memory.value().device_stream;
  } else {
    return Error(ErrorKind::kNotSupported,
                 "this rank has joined without a device: join() takes one");
  }
  out.output = Buffer(width);
  for (const int64_t count : counts) {
    out.output.append(at, count);
    at += static_cast<size_t>(count) * width;
  }
  return out;
}

// Adds the bytes of a tensor to `bytes`. Returns false if a length is invalid, or if they do not
// fit.
bool add_bytes(const CallContent::Tensor& tensor, int64_t& bytes) {
  if (tensor.dtype > DType::kFloat8E5M2) return false;
  auto own = static_cast<int64_t>(dtype_size(tensor.dtype));
  for (const int64_t length : tensor.shape) {
    if (length < 0 && length != CallContent::kAny) return false;
    if (__builtin_mul_overflow(own, length == CallContent::kAny ? 1 : length, &own)) return false;
  }
  return !__builtin_add_overflow(bytes, own, &bytes);
}

}  // namespace

int64_t CallContent::Tensor::count() const {
  int64_t out = 1;
  for (const int64_t length : shape) out *= length == kAny ? 1 : length;
  return out;
}

CallDescription CallContent::describe() const {
  CallDescription out;
  Writer all;
  all.put(kind).put(reduce_op).put(root).put_string(variant).put_string(where);
  all.put(prescale).put(postscale).put(static_cast<uint32_t>(tensors.size()));
  for (const Tensor& tensor : tensors) {
    all.put(tensor.dtype).put(static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t length : tensor.shape) all.put(length);
    out.bytes += tensor.count() * static_cast<int64_t>(dtype_size(tensor.dtype));
  }
  out.content = as_text(all.take());
  out.words = to_string();
  out.needs_all = !traits_of(kind).takes_joined;
  const bool is_alike = std::ranges::all_of(
      tensors, [&](const Tensor& tensor) { return tensor.dtype == tensors[0].dtype; });
  if (kind == Collective::kAllreduce && !tensors.empty() && is_alike) {
    Writer alike;
    alike.put(tensors[0].dtype).put(reduce_op).put_string(variant).put_string(where);
    // never 0, which means that the call is not fused
    out.batch = Hash().add(as_text(alike.take())).value() | 1;
  }
  return out;
}

std::string CallContent::to_string() const {
  std::vector<std::string> parts;
  if (!tensors.empty()) parts.push_back(format(tensors));
  if (reduces(kind)) parts.emplace_back(reduce_op_name(reduce_op));
  if (traits_of(kind).has_root) parts.push_back("root " + std::to_string(root));
  if (prescale != 1) parts.push_back("prescale " + format_number(prescale));
  if (postscale != 1) parts.push_back("postscale " + format_number(postscale));
  if (!variant.empty()) parts.push_back(variant);
  parts.push_back("on " + where);
  std::string out = std::string(collective_name(kind)) + " (";
  for (size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? ", " : "") + parts[i];
  return out + ")";
}

std::string first_tensor_difference(const std::string& one, const std::string& other) {
  const auto a = CallContent::parse(one), b = CallContent::parse(other);
  if (!a.ok() || !b.ok()) return "";
  const auto &ours = a.value().tensors, &theirs = b.value().tensors;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i)
    if (format(ours[i]) != format(theirs[i]))
      return "tensor " + std::to_string(i) + ": " + format(ours[i]) + ", " + format(theirs[i]);
  return "";
}

Result<CallContent> CallContent::parse(const std::string& content) {
  Reader in({reinterpret_cast<const std::byte*>(content.data()), content.size()});
  CallContent out;
  out.kind = in.get<Collective>();
  out.reduce_op = in.get<ReduceOp>();
  out.root = in.get<int>();
  out.variant = in.get_string();
  out.where = in.get_string();
  out.prescale = in.get<double>();
  out.postscale = in.get<double>();
  bool makes_sense = true;
  int64_t bytes = 0;
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    Tensor& tensor = out.tensors.emplace_back();
    tensor.dtype = in.get<DType>();
    for (uint32_t dims = in.get<uint32_t>(); dims > 0 && in.ok(); --dims)
      tensor.shape.push_back(in.get<int64_t>());
    makes_sense = makes_sense && add_bytes(tensor, bytes);
  }
  if (!in.ended() || !makes_sense || !is_collective(out.kind) || !is_reduce_op(out.reduce_op))
    return Error(ErrorKind::kProtocol, "ringdist: negotiation: what a call is cannot be read");
  return out;
}

Result<std::vector<OpRequest>> joined_contribution(const CallDescription& description,
                                                   const FillOnDevice& on_device) {
  auto parsed = CallContent::parse(description.content);
  if (!parsed.ok()) return parsed.error();
  const CallContent& content = parsed.value();
  std::vector<OpRequest> out;
  if (content.kind == Collective::kBarrier) return out;
  if (content.kind != Collective::kAllreduce)
    return Error(ErrorKind::kNotSupported, description.words + " needs all ranks");
  // The order of dtypes must be that of the calling ranks, which is the order of first occurrence.
  std::vector<std::pair<DType, std::vector<int64_t>>> lists;
  for (const CallContent::Tensor& tensor : content.tensors) {
    auto it = std::ranges::find(lists, tensor.dtype, [](const auto& one) { return one.first; });
    if (it == lists.end()) it = lists.insert(it, {tensor.dtype, {}});
    it->second.push_back(tensor.count());
  }
  for (const auto& [dtype, counts] : lists) {
    auto one = allreduce_of(dtype, content, counts, on_device);
    if (!one.ok()) return one.error();
    out.push_back(std::move(one.value()));
  }
  return out;
}

}  // namespace ringdist
