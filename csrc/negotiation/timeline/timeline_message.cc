#include "negotiation/timeline/timeline_message.h"

#include "base/serialize.h"

namespace ringdist {

std::vector<std::byte> TimelineMessage::encode() const {
  Writer out;
  out.put(kind).put_string(path).put(static_cast<uint8_t>(marks_cycles));
  out.put(static_cast<uint8_t>(is_copied));
  out.put(time).put(root_time).put(offset).put_bytes(bytes);
  return out.take();
}

Result<TimelineMessage> TimelineMessage::decode(ConstBytes in_bytes) {
  Reader in(in_bytes);
  TimelineMessage out;
  out.kind = in.get<Kind>();
  out.path = in.get_string();
  out.marks_cycles = in.get<uint8_t>() != 0;
  out.is_copied = in.get<uint8_t>() != 0;
  out.time = in.get<int64_t>();
  out.root_time = in.get<int64_t>();
  out.offset = in.get<int64_t>();
  out.bytes = in.get_bytes();
  if (!in.ended() || out.kind > Kind::kDone)
    return Error(ErrorKind::kProtocol, "ringdist: timeline: a message that cannot be read");
  return out;
}

}  // namespace ringdist
