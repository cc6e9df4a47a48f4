#include "store/store_messages.h"

#include "base/serialize.h"
#include "control/control_frames.h"

namespace ringdist {
namespace {

constexpr size_t kMaxRefusal = 512;  // bytes of a refusal that are shown

void put_values(Writer& out, const std::vector<std::vector<std::byte>>& values) {
  out.put(static_cast<uint32_t>(values.size()));
  for (const auto& value : values) out.put_bytes(value);
}

// Reads a count and so many elements, by `get`, into `out`. Returns false if there are too many.
template <typename T>
bool get_list(Reader& in, std::vector<T>& out, T (Reader::*get)()) {
  const auto count = in.get<uint32_t>();
  if (count > kMaxStoreKeys) return false;
  for (auto left = count; left > 0 && in.ok(); --left) out.push_back((in.*get)());
  return true;
}

}  // namespace

std::vector<std::byte> StoreRequest::frame() const {
  Writer out;
  out.put(op).put(number).put(static_cast<uint32_t>(keys.size()));
  for (const std::string& key : keys) out.put_string(key);
  put_values(out, values);
  return make_frame(FrameType::kStoreRequest, out.take());
}

std::optional<StoreRequest> StoreRequest::decode(ConstBytes body) {
  Reader in(body);
  StoreRequest out;
  out.op = in.get<StoreOp>();
  out.number = in.get<int64_t>();
  const bool is_bounded =
      get_list(in, out.keys, &Reader::get_string) && get_list(in, out.values, &Reader::get_bytes);
  if (!is_bounded || !in.ended() || out.op > StoreOp::kWait) return std::nullopt;
  return out;
}

std::vector<std::byte> StoreAnswer::frame() const {
  Writer out;
  out.put(status).put(number).put_string(text);
  put_values(out, values);
  return make_frame(FrameType::kStoreAnswer, out.take());
}

std::optional<StoreAnswer> StoreAnswer::decode(ConstBytes body) {
  Reader in(body);
  StoreAnswer out;
  out.status = in.get<Status>();
  out.number = in.get<int64_t>();
  out.text = in.get_text(kMaxRefusal);
  const bool is_bounded = get_list(in, out.values, &Reader::get_bytes);
  if (!is_bounded || !in.ended() || out.status > Status::kRefused) return std::nullopt;
  return out;
}

}  // namespace ringdist
