#include "negotiation/call_content.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

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

// Of a grouped call the first will do.
std::string format(const std::vector<CallContent::Tensor>& tensors) {
  constexpr size_t kNamed = 3;
  std::string out;
  for (size_t i = 0; i < tensors.size() && i < kNamed; ++i)
    out += (i > 0 ? " " : "") + format(tensors[i]);
  if (tensors.size() > kNamed) out += " and " + std::to_string(tensors.size() - kNamed) + " more";
  return out;
}

bool has_root(Collective kind) {
  return kind == Collective::kBroadcast || kind == Collective::kReduce ||
         kind == Collective::kGather || kind == Collective::kScatter;
}

// By whom it can be run that has joined.
bool needs_all(Collective kind) {
  return kind != Collective::kAllreduce && kind != Collective::kBarrier;
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
  out.needs_all = needs_all(kind);
  const bool is_alike = std::ranges::all_of(
      tensors, [&](const Tensor& tensor) { return tensor.dtype == tensors[0].dtype; });
  if (kind == Collective::kAllreduce && !tensors.empty() && is_alike) {
    Writer alike;
    alike.put(tensors[0].dtype).put(reduce_op).put_string(variant).put_string(where);
    out.batch = Hash().add(as_text(alike.take())).value() | 1;  // not 0
  }
  return out;
}

std::string CallContent::to_string() const {
  std::vector<std::string> parts;
  if (!tensors.empty()) parts.push_back(format(tensors));
  if (reduces(kind)) parts.emplace_back(reduce_op_name(reduce_op));
  if (has_root(kind)) parts.push_back("root " + std::to_string(root));
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
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    Tensor& tensor = out.tensors.emplace_back();
    tensor.dtype = in.get<DType>();
    for (uint32_t dims = in.get<uint32_t>(); dims > 0 && in.ok(); --dims)
      tensor.shape.push_back(in.get<int64_t>());
    makes_sense = makes_sense && tensor.dtype <= DType::kFloat8E5M2 && tensor.count() >= 0;
  }
  if (!in.ended() || !makes_sense || out.kind > Collective::kPointToPoint ||
      out.reduce_op > ReduceOp::kPremulSum)
    return Error(ErrorKind::kProtocol, "ringdist: negotiation: what a call is cannot be read");
  return out;
}

}  // namespace ringdist
