#include "membership/paxos/consensus_message.h"

#include <cstddef>
#include <utility>

namespace ringdist {
namespace {

void put(Writer& out, const Accepted& accepted) {
  put(out, accepted.ballot);
  put(out, accepted.value);
}

// The get functions return a value also when the bytes end early; in.ended() at the end of the
// decoders detects that.
Accepted get_accepted(Reader& in) {
  const Ballot ballot = get_ballot(in);
  return {ballot, get_decision(in)};
}

void put(Writer& out, const PromiseInfo& info) {
  out.put(info.first_unfinished).put_string(info.store);
  out.put(uint8_t{info.reaches_store}).put_string(info.offers_store);
  put(out, info.newcomers);
  out.put(uint8_t{info.formed}).put(info.most);
}

PromiseInfo get_promise_info(Reader& in) {
  PromiseInfo out;
  out.first_unfinished = in.get<int64_t>();
  out.store = in.get_string();
  out.reaches_store = in.get<uint8_t>() != 0;
  out.offers_store = in.get_string();
  out.newcomers = get_newcomers(in);
  out.formed = in.get<uint8_t>() != 0;
  out.most = in.get<uint32_t>();
  return out;
}

// Writes one byte that is 1 if there is a value, then the value.
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

// Higher rounds are refused, so that a later round always exists.
constexpr uint32_t kMostRounds = uint32_t{1} << 31;

// Returns true if the message has what its kind needs, and if every decision in it belongs to the
// generation that it names.
bool makes_sense(const ConsensusMessage& message) {
  const auto follows = [&](const Decision& decision) {
    return decision.makes_sense() && decision.follows(message.generation);
  };
  const auto kind = message.kind;
  if (message.ballot.round > kMostRounds) return false;
  const bool decides =
      kind == ConsensusMessageKind::kAccept || kind == ConsensusMessageKind::kDecided;
  if (kind > ConsensusMessageKind::kBegun || decides != message.decision.has_value()) return false;
  if ((kind == ConsensusMessageKind::kPromise) != message.info.has_value()) return false;
  if (kind == ConsensusMessageKind::kBegun && !message.made_by) return false;
  if (message.decision && !follows(*message.decision)) return false;
  if (message.accepted &&
      (message.accepted->ballot > message.ballot || !follows(message.accepted->value)))
    return false;
  const auto& made_by = message.made_by;
  return !made_by || (made_by->makes_sense() && made_by->id() == message.generation);
}

// Returns the error for bytes that do not decode.
Error garbled() {
  return Error(ErrorKind::kProtocol, "a message of an agreement makes no sense: another version?");
}

}  // namespace

// The names are in the order of the enum. `kind` must be one of it, as decode_consensus() checks.
std::string_view message_name(ConsensusMessageKind kind) {
  static constexpr std::string_view kNames[] = {"prepare",  "promise",   "refuse", "accept",
                                                "accepted", "wait",      "report", "decided",
                                                "ask",      "installed", "begun"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<std::byte> encode(const ConsensusMessage& message) {
  Writer out;
  out.put(message.kind).put(message.generation.number).put(message.generation.nonce);
  put(out, message.ballot);
  out.put(static_cast<uint32_t>(message.dead.size()));
  for (const int32_t rank : message.dead) out.put(rank);
  put_optional(out, message.accepted);
  put_optional(out, message.info);
  put_optional(out, message.decision);
  put_optional(out, message.made_by);
  return out.take();
}

Result<ConsensusMessage> decode_consensus(ConstBytes bytes) {
  Reader in(bytes);
  ConsensusMessage out;
  out.kind = in.get<ConsensusMessageKind>();
  out.generation.number = in.get<uint32_t>();
  out.generation.nonce = in.get<uint64_t>();
  out.ballot = get_ballot(in);
  get_each(in, [&] { out.dead.push_back(in.get<int32_t>()); });
  out.accepted = get_optional<Accepted>(in, get_accepted);
  out.info = get_optional<PromiseInfo>(in, get_promise_info);
  out.decision = get_optional<Decision>(in, get_decision);
  out.made_by = get_optional<Decision>(in, get_decision);
  if (!in.ended() || !makes_sense(out)) return garbled();
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
  if (!in.ended() || out.ballot.round > kMostRounds || !out.value.makes_sense()) return garbled();
  return out;
}

}  // namespace ringdist
