#include "negotiation/call_content.h"

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

std::string format_shape(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// Of a grouped call the first shapes will do.
std::string format_shapes(const std::vector<std::vector<int64_t>>& shapes) {
  constexpr size_t kNamed = 3;
  std::string out;
  for (size_t i = 0; i < shapes.size() && i < kNamed; ++i)
    out += (i > 0 ? " " : "") + format_shape(shapes[i]);
  if (shapes.size() > kNamed) out += " and " + std::to_string(shapes.size() - kNamed) + " more";
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

int64_t CallContent::count() const {
  int64_t out = 0;
  for (const auto& shape : shapes) {
    int64_t elements = 1;
    for (const int64_t length : shape) elements *= length == kAny ? 1 : length;
    out += elements;
  }
  return out;
}

CallDescription CallContent::describe() const {
  CallDescription out;
  const auto kind_and_how = [this](Writer& writer) {
    writer.put(kind).put(dtype).put(reduce_op).put(root).put_string(codec).put_string(where);
  };
  Writer all;
  kind_and_how(all);
  all.put(prescale).put(postscale).put(static_cast<uint32_t>(shapes.size()));
  for (const auto& shape : shapes) {
    all.put(static_cast<uint32_t>(shape.size()));
    for (const int64_t length : shape) all.put(length);
  }
  out.content = as_text(all.take());
  out.words = std::string(collective_name(kind)) + " (" + std::string(dtype_name(dtype)) + ", " +
              format_shapes(shapes);
  if (reduces(kind)) out.words += ", " + std::string(reduce_op_name(reduce_op));
  if (has_root(kind)) out.words += ", root " + std::to_string(root);
  if (prescale != 1) out.words += ", prescale " + format_number(prescale);
  if (postscale != 1) out.words += ", postscale " + format_number(postscale);
  if (!codec.empty()) out.words += ", " + codec;
  out.words += ", on " + where + ")";
  out.bytes = count() * static_cast<int64_t>(dtype_size(dtype));
  out.needs_all = needs_all(kind);
  if (kind == Collective::kAllreduce) {
    Writer alike;
    kind_and_how(alike);
    out.batch = Hash().add(as_text(alike.take())).value() | 1;  // not 0
  }
  return out;
}

Result<CallContent> CallContent::parse(const std::string& content) {
  Reader in({reinterpret_cast<const std::byte*>(content.data()), content.size()});
  CallContent out;
  out.kind = in.get<Collective>();
  out.dtype = in.get<DType>();
  out.reduce_op = in.get<ReduceOp>();
  out.root = in.get<int>();
  out.codec = in.get_string();
  out.where = in.get_string();
  out.prescale = in.get<double>();
  out.postscale = in.get<double>();
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    auto& shape = out.shapes.emplace_back();
    for (uint32_t dims = in.get<uint32_t>(); dims > 0 && in.ok(); --dims)
      shape.push_back(in.get<int64_t>());
  }
  if (!in.ended() || out.kind > Collective::kPointToPoint || out.dtype > DType::kFloat8E5M2 ||
      out.reduce_op > ReduceOp::kPremulSum || out.count() < 0)
    return Error(ErrorKind::kProtocol, "ringdist: negotiation: what a call is cannot be read");
  return out;
}

}  // namespace ringdist
