#include "negotiation/order/call_messages.h"

#include "base/serialize.h"

namespace ringdist {
namespace {

// Encoding of no rank.
constexpr int kNobody = -1;

void put(Writer& out, bool flag) { out.put(static_cast<uint8_t>(flag)); }
bool get_flag(Reader& in) { return in.get<uint8_t>() != 0; }
void put(Writer& out, const std::optional<int>& rank) { out.put(rank.value_or(kNobody)); }
void get(Reader& in, std::optional<int>& rank) {
  const int value = in.get<int>();
  rank = value == kNobody ? std::nullopt : std::optional(value);
}

void put(Writer& out, const CallDescription& one) {
  out.put_string(one.content).put_string(one.words).put(one.batch).put(one.bytes);
  put(out, one.needs_all);
}
void put(Writer& out, const RankExtra& one) {
  out.put(one.rank).put(static_cast<uint32_t>(one.values.size()));
  for (const int64_t value : one.values) out.put(value);
}
void get(Reader& in, CallDescription& one) {
  one.content = in.get_string();
  one.words = in.get_string();
  one.batch = in.get<uint64_t>();
  one.bytes = in.get<int64_t>();
  one.needs_all = get_flag(in);
}
void get(Reader& in, RankExtra& one) {
  one.rank = in.get<int>();
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left)
    one.values.push_back(in.get<int64_t>());
}

// Lists of these types follow below.
void put(Writer& out, const ReadyCall& one);
void put(Writer& out, const DecidedCall& one);
void put(Writer& out, const FailedCall& one) { out.put_string(one.name).put_string(one.why); }
void get(Reader& in, ReadyCall& one);
void get(Reader& in, DecidedCall& one);
void get(Reader& in, FailedCall& one) {
  one.name = in.get_string();
  one.why = in.get_string();
}

template <typename T>
void put(Writer& out, const std::vector<T>& many) {
  out.put(static_cast<uint32_t>(many.size()));
  for (const T& one : many) put(out, one);
}
template <typename T>
void get(Reader& in, std::vector<T>& many) {
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left)
    get(in, many.emplace_back());
}

// The name is included only if there is no id, or if the id is new to the receiver.
void put(Writer& out, const CallName& one, bool whole) {
  out.put(one.id);
  put(out, whole);
  if (!whole) return;
  out.put_string(one.name);
  put(out, one.description);
}
bool get(Reader& in, CallName& one) {
  one.id = in.get<uint64_t>();
  const bool whole = get_flag(in);
  if (whole) {
    one.name = in.get_string();
    get(in, one.description);
  }
  return whole;
}

void put(Writer& out, const ReadyCall& one) {
  put(out, one.call, /*whole=*/one.call.id == 0);
  out.put(one.rank).put(one.last);
  put(out, one.extras);
  out.put_string(one.conflict);
  put(out, one.absent);
}
void get(Reader& in, ReadyCall& one) {
  get(in, one.call);
  one.rank = in.get<int>();
  one.last = in.get<int>();
  get(in, one.extras);
  one.conflict = in.get_string();
  get(in, one.absent);
}
void put(Writer& out, const DecidedCall& one) {
  put(out, one.call, one.is_new);
  out.put(one.last);
  put(out, one.extras);
}
void get(Reader& in, DecidedCall& one) {
  one.is_new = get(in, one.call);
  one.last = in.get<int>();
  get(in, one.extras);
}

Error unreadable() {
  return {ErrorKind::kProtocol, "ringdist: negotiation: a message that cannot be read"};
}

}  // namespace

std::vector<std::byte> ReadyMessage::encode() const {
  Writer out;
  out.put(seen);
  put(out, joined);
  put(out, ready);
  return out.take();
}

Result<ReadyMessage> ReadyMessage::decode(ConstBytes bytes) {
  Reader in(bytes);
  ReadyMessage out;
  out.seen = in.get<uint64_t>();
  get(in, out.joined);
  get(in, out.ready);
  if (!in.ended()) return unreadable();
  return out;
}

std::vector<std::byte> DecisionMessage::encode(uint32_t received) const {
  Writer out;
  out.put(received).put(position);
  put(out, all_joined);
  put(out, batches);
  put(out, failed);
  return out.take();
}

Result<std::pair<DecisionMessage, uint32_t>> DecisionMessage::decode(ConstBytes bytes) {
  Reader in(bytes);
  const auto received = in.get<uint32_t>();
  DecisionMessage out;
  out.position = in.get<uint64_t>();
  get(in, out.all_joined);
  get(in, out.batches);
  get(in, out.failed);
  if (!in.ended()) return unreadable();
  return std::pair(std::move(out), received);
}

}  // namespace ringdist
