// What processes say to each other about a group's membership. Bytes on the wire; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffers.h"
#include "base/serialize.h"

namespace ringdist {

struct MembershipMessage {
  enum class Kind : uint8_t {
    kAgreement,    // a ConsensusMessage
    kWithdrawn,    // the sender has no part in the group any more; no body
    kJoinRequest,  // the sender wants to become a member: a generation whose members have all
                   // answered it, or kNoGeneration; its entry
    kReached,  // a member has that knock, and its answer has come: its generation, whose members
  };

  static constexpr uint32_t kNoGeneration = ~uint32_t{0};

  uint64_t group_id = 0;
  Kind kind = Kind::kAgreement;
  ConstBytes body;  // of what it was decoded from

  std::vector<std::byte> encode() const {
    auto out = Writer().put(group_id).put(kind).take();
    out.insert(out.end(), body.begin(), body.end());
    return out;
  }
  static std::optional<MembershipMessage> decode(ConstBytes bytes) {
    MembershipMessage out;
    Reader in(bytes);
    out.group_id = in.get<uint64_t>();
    out.kind = in.get<Kind>();
    if (!in.ok() || out.kind > Kind::kReached) return std::nullopt;
    out.body = bytes.subspan(sizeof out.group_id + sizeof out.kind);
    return out;
  }
};

}  // namespace ringdist
