#include "negotiation/stand_in.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "negotiation/call_content.h"

namespace ringdist {
namespace {

using Element = std::array<std::byte, 16>;  // the first bytes of it

template <typename T>
Element element(T value) {
  Element out{};
  std::memcpy(out.data(), &value, sizeof(value));
  return out;
}

// What each leaves as it is.
template <typename T>
struct Neutral {
  T most, least, one;
};

template <typename T>
Element of(ReduceOp op, const Neutral<T>& neutral) {
  if (op == ReduceOp::kMin) return element(neutral.most);
  if (op == ReduceOp::kMax) return element(neutral.least);
  return element(neutral.one);
}

template <typename T>
Element of_number(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity)
    return of<T>(op, {Limits::infinity(), -Limits::infinity(), 1});
  return of<T>(op, {Limits::max(), Limits::lowest(), 1});
}

// Of MIN, MAX and PRODUCT; those without a type in C++ by their bits.
Element neutral(DType dtype, ReduceOp op) {
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

OpRequest allreduce_of(DType dtype, ReduceOp op, int64_t count) {
  OpRequest out;
  out.kind = Collective::kAllreduce;
  out.dtype = dtype;
  out.reduce_op = op;
  out.count = count;
  const size_t width = dtype_size(dtype);
  auto memory = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(count) * width);
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg) {
    const Element fill = neutral(dtype, op);
    for (size_t at = 0; at < memory->size(); at += width)
      std::memcpy(memory->data() + at, fill.data(), width);
  }
  out.output = Buffer(width);
  out.output.append(memory->data(), count);
  out.keep_alive = std::move(memory);
  return out;
}

}  // namespace

Result<std::vector<OpRequest>> stand_in_for(const CallDescription& description) {
  auto parsed = CallContent::parse(description.content);
  if (!parsed.ok()) return parsed.error();
  const CallContent& content = parsed.value();
  std::vector<OpRequest> out;
  if (content.kind == Collective::kBarrier) return out;
  if (content.kind != Collective::kAllreduce)
    return Error(ErrorKind::kNotSupported, description.words + " needs all ranks");
  // As those who call it do: in the order in which dtypes first come.
  std::vector<std::pair<DType, int64_t>> counts;
  for (const CallContent::Tensor& tensor : content.tensors) {
    const auto it = std::ranges::find(counts, tensor.dtype, &std::pair<DType, int64_t>::first);
    if (it == counts.end())
      counts.emplace_back(tensor.dtype, tensor.count());
    else
      it->second += tensor.count();
  }
  for (const auto& [dtype, count] : counts)
    out.push_back(allreduce_of(dtype, content.reduce_op, count));
  return out;
}

}  // namespace ringdist
