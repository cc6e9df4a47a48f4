#include "control/control_frames.h"

#include <cstring>

#include "base/serialize.h"

namespace ringdist {
namespace {

constexpr uint32_t kMagic = 0x6c746452;  // "Rdtl"
constexpr uint32_t kVersion = 1;
constexpr size_t kMostCause = 4096;                             // bytes
constexpr size_t kMostJson = size_t{1} << 19;                   // bytes
constexpr size_t kHeader = sizeof(uint32_t) + sizeof(uint8_t);  // body length and type

}  // namespace

std::vector<std::byte> make_frame(FrameType type, ConstBytes body) {
  std::vector<std::byte> out(kHeader + body.size());
  auto length = static_cast<uint32_t>(body.size());
  std::memcpy(out.data(), &length, sizeof length);
  out[sizeof length] = static_cast<std::byte>(type);
  if (!body.empty()) std::memcpy(out.data() + kHeader, body.data(), body.size());
  return out;
}

std::vector<std::byte> make_frame(FrameType type, std::string_view text) {
  text = text.substr(0, kMaxFrameBody);
  return make_frame(type, ConstBytes{reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

// Drops the frames that next() has returned, so their views end here.
void FrameReader::append(ConstBytes bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(used_));
  used_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Frame>> FrameReader::next() {
  ConstBytes rest = ConstBytes(bytes_).subspan(used_);
  if (rest.size() < kHeader) return std::optional<Frame>();
  uint32_t length = 0;
  std::memcpy(&length, rest.data(), sizeof length);
  if (length > limit_)
    return Error(ErrorKind::kProtocol, "a control frame of " + std::to_string(length) +
                                           " bytes, above the limit of " + std::to_string(limit_));
  if (rest.size() < kHeader + length) return std::optional<Frame>();
  used_ += kHeader + length;
  return std::optional<Frame>(
      Frame{static_cast<FrameType>(rest[sizeof length]), rest.subspan(kHeader, length)});
}

std::vector<std::byte> ControlHello::frame(FrameType type) const {
  Writer out;
  out.put(kMagic).put(kVersion).put(from).put(to).put(nonce);
  return make_frame(type, out.take());
}

std::optional<ControlHello> ControlHello::decode(ConstBytes body) {
  Reader in(body);
  auto magic = in.get<uint32_t>();
  auto version = in.get<uint32_t>();
  ControlHello out;
  out.from = in.get<uint64_t>();
  out.to = in.get<uint64_t>();
  out.nonce = in.get<uint64_t>();
  if (!in.ok() || magic != kMagic || version != kVersion) return std::nullopt;
  return out;
}

std::vector<std::byte> PeerDeparture::frame(FrameType type) const {
  Writer out;
  out.put(context_id).put_string(std::string_view(cause).substr(0, kMostCause));
  return make_frame(type, out.take());
}

std::optional<PeerDeparture> PeerDeparture::decode(ConstBytes body) {
  Reader in(body);
  PeerDeparture out;
  out.context_id = in.get<uint64_t>();
  out.cause = in.get_text(kMostCause);
  if (!in.ended()) return std::nullopt;
  return out;
}

std::vector<std::byte> GroupFormed::frame() const {
  Writer out;
  out.put(nonce);
  for (const uint64_t process : processes) out.put(process);
  return make_frame(FrameType::kFormed, out.take());
}

// The size of the body gives the number of ids: the nonce comes first, and has the same size.
std::optional<GroupFormed> GroupFormed::decode(ConstBytes body) {
  Reader in(body);
  GroupFormed out;
  out.nonce = in.get<uint64_t>();
  for (size_t n = body.size() / sizeof(uint64_t); n > 1; --n)
    out.processes.push_back(in.get<uint64_t>());
  if (!in.ok()) return std::nullopt;
  return out;
}

std::vector<std::byte> FloodRecord::frame() const {
  Writer out;
  out.put(origin).put(sequence).put_bytes(payload);
  return make_frame(FrameType::kFlood, out.take());
}

// The fields are read one by one, because the payload must be a view and fill the rest exactly.
std::optional<FloodRecord> FloodRecord::decode(ConstBytes body) {
  constexpr size_t kFixed = 2 * sizeof(uint64_t) + sizeof(uint32_t);
  Reader in(body);
  FloodRecord out;
  out.origin = in.get<uint64_t>();
  out.sequence = in.get<uint64_t>();
  auto length = in.get<uint32_t>();
  if (!in.ok() || body.size() - kFixed != length) return std::nullopt;
  out.payload = body.subspan(kFixed);
  return out;
}

std::vector<std::byte> SnapshotSearch::frame() const {
  Writer out;
  out.put(id.origin).put(id.number).put(request);
  return make_frame(FrameType::kSnapshotSearch, out.take());
}

std::optional<SnapshotSearch> SnapshotSearch::decode(ConstBytes body) {
  Reader in(body);
  SnapshotSearch out;
  out.id.origin = in.get<uint64_t>();
  out.id.number = in.get<uint64_t>();
  out.request = in.get<uint8_t>();
  if (!in.ended()) return std::nullopt;
  return out;
}

std::vector<std::byte> SnapshotAnswer::frame() const {
  Writer out;
  out.put(id.origin).put(id.number).put(context_id);
  out.put_string(json.size() <= kMostJson ? std::string_view(json) : std::string_view("{}"));
  for (const uint64_t process : stopped) out.put(process);
  return make_frame(FrameType::kSnapshotAnswer, out.take());
}

std::optional<SnapshotAnswer> SnapshotAnswer::decode(ConstBytes body) {
  Reader in(body);
  SnapshotAnswer out;
  out.id.origin = in.get<uint64_t>();
  out.id.number = in.get<uint64_t>();
  out.context_id = in.get<uint64_t>();
  out.json = in.get_string();
  while (in.ok() && !in.ended()) out.stopped.push_back(in.get<uint64_t>());
  if (!in.ended() || out.json.size() > kMostJson) return std::nullopt;
  return out;
}

std::vector<std::byte> id_frame(FrameType type, uint64_t context_id) {
  return make_frame(type, Writer().put(context_id).take());
}

std::optional<uint64_t> decode_id(ConstBytes body) {
  Reader in(body);
  auto id = in.get<uint64_t>();
  if (!in.ok()) return std::nullopt;
  return id;
}

std::string decode_text(ConstBytes body) {
  return {reinterpret_cast<const char*>(body.data()), body.size()};
}

}  // namespace ringdist
