#include "engine/group/notice.h"

#include "base/describe.h"
#include "base/serialize.h"

namespace ringdist {
namespace {

constexpr size_t kMostNoticeText = 16384;  // bytes

}  // namespace

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
  out.text = in.get_text(kMostNoticeText);
  for (auto n = in.get<uint32_t>(); n > 0 && in.ok(); --n) out.ranks.push_back(in.get<int32_t>());
  if (!in.ok() || out.kind > NoticeKind::kReceivesAborted || out.error_kind > ErrorKind::kProtocol)
    return std::nullopt;
  return out;
}

Notice make_notice(NoticeKind kind, uint64_t nonce, uint32_t generation, int rank, uint64_t op) {
  Notice notice;
  notice.kind = kind;
  notice.nonce = nonce;
  notice.generation = generation;
  notice.rank = rank;
  notice.op = op;
  return notice;
}

Notice abort_notice(uint64_t nonce, uint32_t generation, int rank, uint64_t op,
                    const Error& cause) {
  Notice notice = make_notice(NoticeKind::kAbort, nonce, generation, rank, op);
  notice.error_kind = cause.kind();
  notice.ranks = cause.ranks();
  notice.text = cause.message();
  return notice;
}

Error cause_of(const Notice& abort) {
  const bool add = abort.error_kind == ErrorKind::kAborted &&
                   abort.text.find(kClosedByPeer) == std::string::npos;
  return Error(abort.error_kind, "rank " + std::to_string(abort.rank) + " ended the group at op #" +
                                     std::to_string(abort.op) + ": " +
                                     std::string(add ? kClosedByPeer : "") + abort.text)
      .blame(abort.ranks);
}

bool aborts_formation(const Notice& notice) {
  return notice.kind == NoticeKind::kAbort && notice.op <= 1;
}

}  // namespace ringdist
