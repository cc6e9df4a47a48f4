#include "consensus/message.h"

#include <cstddef>
#include <utility>

namespace ringdist {
namespace {

void put(Writer& out, const Ballot& ballot) { out.put(ballot.round).put(ballot.rank); }

Ballot get_ballot(Reader& in) {
  const auto round = in.get<uint32_t>();
  return {round, in.get<int32_t>()};
}

void put(Writer& out, const Accepted& accepted) {
  put(out, accepted.ballot);
  put(out, accepted.value);
}

Accepted get_accepted(Reader& in) {
  const Ballot ballot = get_ballot(in);
  return {ballot, get_decision(in)};
}

void put(Writer& out, const Standing& standing) {
  out.put(standing.first_unfinished).put_string(standing.store);
  out.put(uint8_t{standing.reaches_store}).put_string(standing.offers_store);
  out.put(static_cast<uint32_t>(standing.newcomers.size()));
  for (const Newcomer& one : standing.newcomers) out.put(one.process).put_string(one.entry);
}

Standing get_standing(Reader& in) {
  Standing out;
  out.first_unfinished = in.get<int64_t>();
  out.store = in.get_string();
  out.reaches_store = in.get<uint8_t>() != 0;
  out.offers_store = in.get_string();
  const auto count = in.get<uint32_t>();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    const auto process = in.get<ProcessId>();
    out.newcomers.push_back({process, in.get_string()});
  }
  return out;
}

template <typename T>
void put_optional(Writer& out, const std::optional<T>& value) {
  out.put(uint8_t{value.has_value()});
  if (value) put(out, *value);
}

template <typename T, typename Get>
std::optional<T> get_optional(Reader& in, const Get& get) {
  if (in.get<uint8_t>() == 0) return std::nullopt;
  return get(in);
}

Error garbled() {
  return Error(ErrorKind::kProtocol, "a message of an agreement makes no sense: another version?");
}

}  // namespace

std::string_view message_name(MessageKind kind) {
  static constexpr std::string_view kNames[] = {"prepare",  "promise",   "refuse", "accept",
                                                "accepted", "wait",      "report", "decided",
                                                "ask",      "installed", "begun"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<std::byte> encode(const ConsensusMessage& message) {
  Writer out;
  out.put(message.kind).put(message.generation).put(message.nonce);
  put(out, message.ballot);
  out.put(static_cast<uint32_t>(message.dead.size()));
  for (const int32_t rank : message.dead) out.put(rank);
  put_optional(out, message.accepted);
  put_optional(out, message.standing);
  put_optional(out, message.decision);
  put_optional(out, message.made_by);
  return out.take();
}

Result<ConsensusMessage> decode_consensus(ConstBytes bytes) {
  Reader in(bytes);
  ConsensusMessage out;
  out.kind = in.get<MessageKind>();
  out.generation = in.get<uint32_t>();
  out.nonce = in.get<uint64_t>();
  out.ballot = get_ballot(in);
  const auto dead = in.get<uint32_t>();
  for (uint32_t i = 0; i < dead && in.ok(); ++i) out.dead.push_back(in.get<int32_t>());
  out.accepted = get_optional<Accepted>(in, get_accepted);
  out.standing = get_optional<Standing>(in, get_standing);
  out.decision = get_optional<Decision>(in, get_decision);
  out.made_by = get_optional<Decision>(in, get_decision);
  const bool needs_decision = out.kind == MessageKind::kAccept || out.kind == MessageKind::kDecided;
  if (!in.ok() || out.kind > MessageKind::kBegun || needs_decision != out.decision.has_value() ||
      (out.kind == MessageKind::kPromise) != out.standing.has_value() ||
      (out.kind == MessageKind::kBegun && !out.made_by))
    return garbled();
  return out;
}

std::string encode_vote(const Accepted& accepted) {
  Writer out;
  put(out, accepted);
  const auto bytes = out.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<Accepted> decode_vote(const std::string& text) {
  Reader in({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  Accepted out = get_accepted(in);
  if (!in.ok()) return garbled();
  return out;
}

}  // namespace ringdist
