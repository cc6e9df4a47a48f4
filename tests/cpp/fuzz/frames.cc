// Fuzz target: a stream of control frames, with the messages in them.
#include "control/control_frames.h"
#include "engine/group/notice.h"
#include "fuzz/target.h"
#include "transport/tcp/data_port.h"

namespace ringdist::test {
namespace frames_fuzz {

constexpr size_t kHeaderBytes = 5;  // length and type

using Frames = std::vector<std::pair<FrameType, std::vector<std::byte>>>;

// Reads the stream in pieces of `step` bytes, up to the first frame above the limit.
Frames read(ConstBytes stream, size_t limit, size_t step) {
  Frames out;
  FrameReader reader;
  reader.set_limit(limit);
  for (size_t at = 0; at < stream.size(); at += step) {
    reader.append(stream.subspan(at, std::min(step, stream.size() - at)));
    for (;;) {
      const auto frame = reader.next();
      if (!frame.ok()) return out;
      if (!frame.value()) break;
      const ConstBytes body = frame.value()->body;
      check(body.size() <= limit, "a frame above the limit");
      out.emplace_back(frame.value()->type, std::vector(body.begin(), body.end()));
    }
  }
  return out;
}

std::vector<std::byte> body_of(std::vector<std::byte> frame) {
  frame.erase(frame.begin(), frame.begin() + kHeaderBytes);
  return frame;
}

void decode_all(ConstBytes body) {
  check_round_trip(body, ControlHello::decode,
                   [](const auto& one) { return body_of(one.frame()); });
  check_round_trip(body, DataHello::decode, [](const auto& one) { return body_of(one.frame()); });
  check_round_trip(body, GroupFormed::decode, [](const auto& one) { return body_of(one.frame()); });
  check_round_trip(body, FloodRecord::decode, [](const auto& one) { return body_of(one.frame()); });
  check_round_trip(body, PeerDeparture::decode,
                   [](const auto& one) { return body_of(one.frame(FrameType::kLost)); });
  check_round_trip(body, decode_id,
                   [](uint64_t id) { return body_of(id_frame(FrameType::kWelcome, id)); });
  check_round_trip(body, Notice::decode, [](const auto& one) { return one.encode(); });
  if (const auto flood = FloodRecord::decode(body)) (void)Notice::decode(flood->payload);
  (void)decode_text(body);
}

bool run(ConstBytes bytes) {
  FuzzInput input(bytes);
  const size_t limit = input.byte() % 2 == 0 ? kMaxFrameBody : 256;
  const size_t step = 1 + input.byte();
  const auto stream = input.rest();
  const Frames frames = read(stream, limit, step);
  check(frames == read(stream, limit, stream.size() + 1), "frames depend on the pieces");
  for (const auto& [type, body] : frames) decode_all(body);
  return true;
}

FuzzSeeds seeds() {
  Notice notice = abort_notice(77, 0, 1, 3, Error(ErrorKind::kPeerLost, "gone\x1b"));
  notice.ranks = {1, 2};
  const auto text = notice.encode();
  const std::vector<std::vector<std::byte>> frames{
      ControlHello{1, 2, 3}.frame(),
      DataHello{1, 2, 1, {}}.frame(),
      GroupFormed{77, {1, 2, 3}}.frame(),
      FloodRecord{1, 2, text}.frame(),
      PeerDeparture{1, "killed"}.frame(FrameType::kLost),
      id_frame(FrameType::kHeld, 1),
      make_frame(FrameType::kRefused, "no"),
      make_frame(FrameType::kNeed, text)};
  FuzzSeeds out;
  FuzzSeed all;
  all.byte(0).byte(3);
  for (const auto& frame : frames) {
    out.push_back(FuzzSeed().byte(1).byte(255).rest(frame).take());
    all.rest(frame);
  }
  out.push_back(all.take());
  return out;
}

}  // namespace frames_fuzz

const FuzzTarget kFramesFuzz{
    "frames", "csrc/(control/control_frames|engine/group/notice|transport/tcp/data_port)",
    frames_fuzz::run, frames_fuzz::seeds};

}  // namespace ringdist::test
