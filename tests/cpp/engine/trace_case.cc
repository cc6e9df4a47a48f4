#include "engine/trace_case.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "kernel/cast.h"
#include "plan/compressed_plan.h"
#include "support/trace.h"

namespace ringdist {
namespace {

// With segments of 4096 bytes, an edge has five to twelve for a whole tensor and nine for a part.
// Compressed (4096 elements) it has three to eight, and five.
constexpr int64_t kManyElements = 24007;
constexpr int64_t kManyOfPart = 9001;
constexpr int64_t kManyCoded = 60013;
constexpr int64_t kManyOfCodedPart = 20011;

// Returns true if its parts may have different sizes.
bool has_parts(Collective kind) {
  return kind == Collective::kAllgather || kind == Collective::kReduceScatter ||
         kind == Collective::kAlltoall;
}

bool takes_codecs(Collective kind) {
  OpRequest request;
  request.kind = kind;
  request.reduce_op = ReduceOp::kSum;
  request.codec_map = std::make_shared<CodecMap>();
  return !check_codec_map(request, 1);
}

// Returns parts[a][b], the number of elements of rank a that concern rank b. Some are zero.
std::vector<std::vector<int64_t>> uneven(Collective kind, int size) {
  std::vector<std::vector<int64_t>> out(size, std::vector<int64_t>(size));
  for (int a = 0; a < size; ++a)
    for (int b = 0; b < size; ++b)
      out[a][b] = kind == Collective::kAllgather       ? (a * 3 + 2) % 5 * 1201
                  : kind == Collective::kReduceScatter ? (b * 3 + 2) % 5 * 1201
                                                       : (a * 3 + b * 5 + 2) % 7 * 401;
  return out;
}

// Returns values that use all 24 bits of a mantissa, so that sums round, over 32 binades. Some are
// zero.
float value(int rank, int64_t i) {
  auto x = static_cast<uint64_t>(i * 64 + rank + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
  x ^= x >> 32;
  if (i % 97 == 5) return 0;
  const auto mantissa = static_cast<int32_t>(x & 0xffffff) - 0x800000;
  return std::ldexp(static_cast<float>(mantissa), static_cast<int>(x >> 40 & 31) - 40);
}

std::vector<std::byte> values(DType dtype, int rank, int64_t count) {
  std::vector<float> floats(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) floats[static_cast<size_t>(i)] = value(rank, i);
  std::vector<std::byte> out(floats.size() * dtype_size(dtype));
  if (dtype == DType::kFloat32 || is_half(dtype))
    narrow(dtype, floats, out);
  else  // any bits will do
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::byte>(i * 37 + static_cast<size_t>(rank) * 11 + i / 256);
  return out;
}

}  // namespace

std::string TraceCase::name() const {
  std::string out(collective_name(what.kind));
  if (!algorithm.empty()) out += " " + algorithm;
  out += ", " + std::to_string(what.size) + (what.size == 1 ? " rank" : " ranks");
  if (what.kind == Collective::kBarrier) return out;
  out += ": " + std::string(dtype_name(dtype));
  if (op != ReduceOp::kNone) out += " " + std::string(reduce_op_name(op));
  out += what.parts.empty() ? " x " + std::to_string(what.count) : " of uneven parts";
  if (traits_of(what.kind).has_root) out += ", root " + std::to_string(what.root);
  if (!codec.empty()) out += ", codec " + codec;
  if (residual) out += " with residual";
  return out;
}

std::vector<Collective> traced_collectives() {
  std::vector<Collective> out;
  for (size_t i = 0; i < kCollectives; ++i) out.push_back(static_cast<Collective>(i));
  return out;
}

std::vector<std::string> traced_algorithms(Collective kind) {
  if (kind == Collective::kPointToPoint) return {""};
  std::vector<std::string> out;
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.supports(kind)) out.emplace_back(algorithm.name);
  return out;
}

std::vector<TraceCase> trace_cases(Collective kind, const std::string& algorithm, int size) {
  TraceCase plain;
  plain.what = {kind, size};
  if (kind == Collective::kPointToPoint && size == 1) return {};
  plain.algorithm = algorithm;
  if (kind == Collective::kBarrier) {
    plain.dtype = DType::kBytes;
    plain.many = true;
    return {plain};
  }
  std::vector<TraceCase> out;
  const auto add = [&](DType dtype, ReduceOp op, int64_t count, std::string codec = "",
                       bool residual = false) {
    TraceCase one = plain;
    one.dtype = dtype;
    one.op = reduces(kind) ? op : ReduceOp::kNone;
    one.what.count = count;
    one.codec = std::move(codec);
    one.residual = residual;
    one.many = count >= kManyOfPart;
    out.push_back(one);
    if (!traits_of(kind).has_root || size == 1) return;
    out.back().what.root = size - 1;
    out.push_back(one);
  };
  const int64_t many = traits_of(kind).in_place ? kManyElements : kManyOfPart;
  add(DType::kFloat32, ReduceOp::kSum, many);
  add(DType::kBFloat16, ReduceOp::kAvg, 1003);
  add(DType::kInt32, ReduceOp::kSum, 3);
  if (size == 3) add(DType::kFloat32, ReduceOp::kSum, 0);
  if (kind == Collective::kPointToPoint)  // the shortest message that needs a grant
    add(DType::kFloat32, ReduceOp::kSum, 1025);
  if (has_parts(kind)) {
    add(DType::kFloat32, ReduceOp::kSum, 0);
    out.back().what.parts = uneven(kind, size);
  }
  if (!takes_codecs(kind)) return out;
  const int64_t coded = traits_of(kind).in_place ? kManyCoded : kManyOfCodedPart;
  add(DType::kFloat32, ReduceOp::kSum, coded, "int4", true);
  add(DType::kBFloat16, ReduceOp::kAvg, 3001, "int4>int8", true);
  add(DType::kFloat32, ReduceOp::kAvg, 1003, "int4");
  return out;
}

TraceRank::TraceRank(const TraceCase& one, int rank, int32_t tag)
    : case_(one), rank_(rank), tag_(tag) {
  symbolic::Counts counts = symbolic::counts_of(one.what, rank);
  if (one.what.kind == Collective::kPointToPoint) counts = {one.what.count, one.what.count};
  input_ = values(one.dtype, rank, counts.input);
  output_ = values(one.dtype, rank, counts.output);
  if (!traits_of(one.what.kind).in_place) std::ranges::fill(output_, std::byte{0});
}

std::vector<OpRequest> TraceRank::requests() {
  std::vector<OpRequest> out;
  if (case_.what.kind != Collective::kPointToPoint) {
    out.push_back(collective());
  } else {  // around a circle, where rank 0 receives from any source
    const int before = rank_ == 0 ? Envelope::kAnySource : rank_ - 1;
    out.push_back(message(before, /*sends=*/false, output_));
    out.push_back(message((rank_ + 1) % case_.what.size, /*sends=*/true, input_));
  }
  return out;
}

OpRequest TraceRank::collective() {
  const Shape shape = symbolic::shape_of(case_.what, rank_);
  OpRequest out;
  out.kind = case_.what.kind;
  out.dtype = case_.dtype;
  out.reduce_op = case_.op;
  out.root = shape.root;
  out.count = shape.count;
  out.input_parts = shape.input_parts;
  out.output_parts = shape.output_parts;
  out.input = over(input_);
  out.output = over(output_);
  if (!case_.codec.empty()) out.codec_map = block_map();
  return out;
}

OpRequest TraceRank::message(int peer, bool sends, std::vector<std::byte>& data) const {
  OpRequest out;
  out.kind = Collective::kPointToPoint;
  out.dtype = case_.dtype;
  out.count = case_.what.count;
  out.envelope = Envelope{peer, tag_, sends};
  (sends ? out.input : out.output) = over(data);
  return out;
}

// For long buffers, the elements in the middle are not compressed.
std::shared_ptr<const CodecMap> TraceRank::block_map() {
  const auto bytes = case_.what.kind == Collective::kAllreduce ? output_.size() : input_.size();
  const auto count = static_cast<int64_t>(bytes / dtype_size(case_.dtype));
  const int64_t first = count / 3;
  const int64_t plain = std::min<int64_t>(257, count - first);
  residual_.resize(case_.residual ? static_cast<size_t>(count) : 0);
  for (size_t i = 0; i < residual_.size(); ++i)
    residual_[i] = std::ldexp(value(rank_ + 7, static_cast<int64_t>(i)), -3);
  const CodecPair coded = parse_codec_pair(case_.codec, case_.what.size).value();
  const CodecPair none = parse_codec_pair("none", case_.what.size).value();
  auto out = std::make_shared<CodecMap>();
  for (const auto& [length, codecs] :
       {std::pair{first, coded}, {plain, none}, {count - first - plain, coded}}) {
    float* residual = case_.residual ? residual_.data() + out->count() : nullptr;
    out->parts.push_back({out->count(), length, codecs, residual});
  }
  return out;
}

Buffer TraceRank::over(std::vector<std::byte>& data) const {
  const size_t element = dtype_size(case_.dtype);
  const auto count = static_cast<int64_t>(data.size() / element);
  const int64_t first = count / 2;
  Buffer out(element);
  out.append(data.data(), first);
  out.append(data.data() + static_cast<size_t>(first) * element, count - first);
  return out;
}

std::string TraceRank::result_line() const {
  std::string out = "rank " + std::to_string(rank_) + ": output " + hex(hash_of(output_));
  if (case_.residual) out += ", residual " + hex(hash_of(std::as_bytes(std::span(residual_))));
  return out;
}

}  // namespace ringdist
