#include "negotiation/stall/stall_message.h"

#include "base/serialize.h"

namespace ringdist {

std::vector<std::byte> StallMessage::encode() const {
  Writer out;
  out.put(kind).put(inquiry).put(lacks).put(static_cast<uint8_t>(has_joined)).put_string(instead);
  out.put(static_cast<uint32_t>(calls.size()));
  for (const StalledCall& one : calls)
    out.put_string(one.name).put(one.milliseconds).put(static_cast<uint8_t>(one.is_late));
  out.put(static_cast<uint32_t>(names.size()));
  for (const std::string& name : names) out.put_string(name);
  out.put(static_cast<uint32_t>(found.size()));
  for (const StallFinding& one : found) out.put_string(one.name).put_string(one.awaits);
  return out.take();
}

Result<StallMessage> StallMessage::decode(ConstBytes bytes) {
  Reader in(bytes);
  StallMessage out;
  out.kind = in.get<Kind>();
  out.inquiry = in.get<uint32_t>();
  out.lacks = in.get<uint64_t>();
  out.has_joined = in.get<uint8_t>() != 0;
  out.instead = in.get_string();
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    StalledCall& one = out.calls.emplace_back();
    one.name = in.get_string();
    one.milliseconds = in.get<int64_t>();
    one.is_late = in.get<uint8_t>() != 0;
  }
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left)
    out.names.push_back(in.get_string());
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    StallFinding& one = out.found.emplace_back();
    one.name = in.get_string();
    one.awaits = in.get_string();
  }
  if (!in.ended() || out.kind > Kind::kFound)
    return Error(ErrorKind::kProtocol, "ringdist: negotiation: a message that cannot be read");
  return out;
}

}  // namespace ringdist
