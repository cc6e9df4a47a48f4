#include "engine/group/notice.h"

#include "base/serialize.h"

namespace ringdist {

std::vector<std::byte> Notice::encode() const {
  Writer out;
  out.put(nonce).put(kind).put(error_kind).put(generation).put(op).put(rank);
  out.put(fingerprint).put_string(text);
  out.put(static_cast<uint32_t>(ranks.size()));
  for (const int one : ranks) out.put<int32_t>(one);
  return out.take();
}

std::optional<Notice> Notice::decode(ConstBytes bytes) {
  Reader in(bytes);
  Notice out;
  out.nonce = in.get<uint64_t>();
  out.kind = in.get<NoticeKind>();
  out.error_kind = in.get<ErrorKind>();
  out.generation = in.get<uint32_t>();
  out.op = in.get<uint64_t>();
  out.rank = in.get<int32_t>();
  out.fingerprint = in.get<Fingerprint>();
  out.text = in.get_string();
  for (auto n = in.get<uint32_t>(); n > 0 && in.ok(); --n) out.ranks.push_back(in.get<int32_t>());
  if (!in.ok() || out.kind > NoticeKind::kExit || out.error_kind > ErrorKind::kProtocol)
    return std::nullopt;
  return out;
}

}  // namespace ringdist
