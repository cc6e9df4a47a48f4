#include "negotiation/joined_contribution.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "negotiation/call_content.h"

namespace ringdist {
namespace {

template <typename T>
ElementBytes element(T value) {
  ElementBytes out{};
  std::memcpy(out.data(), &value, sizeof(value));
  return out;
}

// What each leaves as it is.
template <typename T>
struct Neutral {
  T most, least, one;
};

template <typename T>
ElementBytes of(ReduceOp op, const Neutral<T>& neutral) {
  if (op == ReduceOp::kMin) return element(neutral.most);
  if (op == ReduceOp::kMax) return element(neutral.least);
  return element(neutral.one);
}

template <typename T>
ElementBytes of_number(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity)
    return of<T>(op, {Limits::infinity(), -Limits::infinity(), 1});
  return of<T>(op, {Limits::max(), Limits::lowest(), 1});
}

// Of MIN, MAX and PRODUCT; those without a type in C++ by their bits.
ElementBytes neutral(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kFloat64:
      return of_number<double>(op);
    case DType::kFloat32:
    case DType::kComplex64:  // 1 + 0i: complex numbers have a PRODUCT alone
      return of_number<float>(op);
    case DType::kComplex128:
      return of_number<double>(op);
    case DType::kBFloat16:
      return of<uint16_t>(op, {0x7f80, 0xff80, 0x3f80});
    case DType::kFloat16:
    case DType::kComplex32:
      return of<uint16_t>(op, {0x7c00, 0xfc00, 0x3c00});
    case DType::kFloat8E4M3FN:
      return of<uint8_t>(op, {0x7e, 0xfe, 0x38});  // it has no infinity
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

ElementBytes fill_of(DType dtype, ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kAvg ? ElementBytes{} : neutral(dtype, op);
}

std::shared_ptr<std::vector<std::byte>> filled(int64_t count, size_t width,
                                               const ElementBytes& value) {
  auto out = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(count) * width);
  for (size_t at = 0; at < out->size(); at += width)
    std::memcpy(out->data() + at, value.data(), width);
  return out;
}

// Of tensors of one dtype, of so many elements each.
Result<OpRequest> allreduce_of(DType dtype, const CallContent& call,
                               const std::vector<int64_t>& counts, const FillOnDevice& on_device) {
  OpRequest out;
  out.kind = Collective::kAllreduce;
  out.dtype = dtype;
  out.reduce_op = call.reduce_op;
  out.count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const size_t width = dtype_size(dtype);
  const ElementBytes fill = fill_of(dtype, call.reduce_op);
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

}  // namespace

Result<std::vector<OpRequest>> joined_contribution(const CallDescription& description,
                                                   const FillOnDevice& on_device) {
  auto parsed = CallContent::parse(description.content);
  if (!parsed.ok()) return parsed.error();
  const CallContent& content = parsed.value();
  std::vector<OpRequest> out;
  if (content.kind == Collective::kBarrier) return out;
  if (content.kind != Collective::kAllreduce)
    return Error(ErrorKind::kNotSupported, description.words + " needs all ranks");
  // As those who call it do: in the order in which dtypes first come.
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
