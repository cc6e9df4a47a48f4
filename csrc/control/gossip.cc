#include "control/gossip.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/describe.h"
#include "base/log.h"
#include "base/serialize.h"
#include "control/control_frames.h"
#include "control/control_report.h"

namespace ringdist {
namespace {

// Leaves room for the other fields of the record, and for a certificate and its signature.
constexpr size_t kMaxFlood = kMaxFrameBody - 65536;
constexpr Duration kLogUnsignedEvery = std::chrono::seconds(1);

// Notices are signed under this name.
std::string seal_name(uint64_t origin, uint64_t sequence) {
  return "notice " + std::to_string(sequence) + " of " + std::to_string(origin);
}

// Two values of `Heard`: for no process and for all.
bool nobody(uint64_t /*peer*/) { return false; }
bool everybody(uint64_t /*peer*/) { return true; }

}  // namespace

// The history gets the notice too, for connections that open within the next minute.
void ControlGossip::flood(const std::vector<std::byte>& payload, TimePoint now) {
  if (payload.size() > kMaxFlood)
    return log(LogLevel::kError,
               "a notice of " + std::to_string(payload.size()) + " bytes was not sent");
  const uint64_t number = sequence_++;
  const auto sealed =
      signing_ ? signing_->seal(payload, seal_name(id_, number)) : std::vector<std::byte>();
  if (sealed.size() > kMaxFrameBody - 64)
    return log(LogLevel::kError,
               "a notice was not sent, because the certificate of this process "
               "has " +
                   std::to_string(sealed.size() - payload.size()) + " bytes");
  const FloodRecord record{id_, number, signing_ ? sealed : payload};
  history_.record_flood(record, now);
  sender_.send_to_all(record.frame());
}

void ControlGossip::on_flood(ControlConnection& from, const Frame& frame, TimePoint now) {
  const auto record = FloodRecord::decode(frame.body);
  if (!record || record->origin == 0 || record->origin == id_ ||
      history_.has_flood(record->origin, record->sequence))
    return;
  std::optional<std::vector<std::byte>> opened;
  if (signing_) opened = open(*record, now);
  if (signing_ && !opened) return;
  if (!history_.record_flood(*record, now)) return;
  const ConstBytes notice = opened ? ConstBytes(*opened) : record->payload;
  pass_on(make_frame(FrameType::kFlood, frame.body), &from, who_heard(notice, from));
  events_.on_flood(record->origin, notice);
}

// A certificate may expire during a job. Notices of an open connection still count, since only a
// handshake checks that.
std::optional<std::vector<std::byte>> ControlGossip::open(const FloodRecord& flood, TimePoint now) {
  auto opened = signing_->unseal(flood.payload, seal_name(flood.origin, flood.sequence),
                                 TlsKey::Expired::kAllowed);
  if (opened && opened->signer->fits(flood.origin)) return std::move(opened->value);
  if (now - refused_at_ < kLogUnsignedEvery) return std::nullopt;
  refused_at_ = now;
  log(LogLevel::kWarn, "control plane: dropped a notice in the name of process " +
                           format_id(flood.origin) + ": " +
                           (opened ? "it was signed with " + opened->signer->describe()
                                   : "no member has signed it"));
  return std::nullopt;
}

void ControlGossip::pass_on(ConstBytes frame, const ControlConnection* from, const Heard& heard) {
  sender_.for_each([&](ControlConnection& c) {
    if (c.open() && &c != from && !(c.kind == LinkKind::kLocal && heard(c.peer)))
      sender_.send(c, frame);
  });
}

// Once all members of a group have found each other, those of one host are connected. Each then
// receives a notice directly from the first process of the host that sends it.
bool ControlGossip::formed(uint64_t nonce, ControlGroup& group) {
  if (!group.formed)
    group.formed = std::ranges::all_of(group.roster.processes(), [&](const auto& one) {
      return formation_barrier_.has(nonce, one.first);
    });
  return group.formed;
}

// If a member of a formed group sends a notice about it inside the host, every process there that
// needs the notice gets it. A group's members use only links of the group, which last as long as it
// does.
//
// For a group that this process is not in, the sender has notified the processes with which it
// shares a formed group of this process.
ControlGossip::Heard ControlGossip::who_heard(ConstBytes payload, const ControlConnection& from) {
  if (from.kind != LinkKind::kLocal || payload.size() < sizeof(uint64_t)) return nobody;
  const uint64_t nonce = Reader(payload).get<uint64_t>();
  if (groups_.over(nonce, from.peer)) return everybody;
  if (ControlGroup* group = groups_.find(nonce))
    return group->roster.has(from.peer) && formed(nonce, *group) ? everybody : nobody;
  std::vector<const LinkTopology*> shared;
  for (auto& [id, group] : groups_.all())
    if (group.roster.has(from.peer) && formed(id, group)) shared.push_back(&group.roster);
  return [shared = std::move(shared)](uint64_t peer) {
    return std::ranges::any_of(shared, [peer](const auto* roster) { return roster->has(peer); });
  };
}

// Members of a formed group on the same host are connected to each other.
bool ControlGossip::host_has_met(uint64_t id) {
  bool met = false;
  for (auto& [nonce, group] : groups_.all()) {
    if (!group.roster.has(id)) continue;
    if (!formed(nonce, group) || group.roster.member(id).host != group.roster.my_host())
      return false;
    met = true;
  }
  return met;
}

void ControlGossip::pass_on_lost(uint64_t id, const std::string& cause,
                                 const ControlConnection* from) {
  pass_on(PeerDeparture{id, cause}.frame(FrameType::kLost), from, nobody);
}

void ControlGossip::pass_on_left(uint64_t id, const ControlConnection* from) {
  pass_on(PeerDeparture{id, ""}.frame(FrameType::kLeft), from,
          host_has_met(id) ? everybody : nobody);
}

void ControlGossip::learn_formed(uint64_t nonce, const std::vector<uint64_t>& processes,
                                 const ControlConnection* from) {
  const auto ours = [this](uint64_t one) { return groups_.find(one) != nullptr; };
  const std::vector<uint64_t> news = formation_barrier_.learn(nonce, processes, ours);
  const ControlGroup* group = groups_.find(nonce);
  if (group != nullptr && !news.empty()) tell_formed(nonce, group->roster, news, from);
}

// Reports about a group of this process come from its members, and are about members. For a group
// that this process does not have yet, FormationBarrier limits the number of ids.
void ControlGossip::on_formed(ControlConnection& from, const Frame& frame) {
  auto told = GroupFormed::decode(frame.body);
  if (!told) return;
  if (const ControlGroup* group = groups_.find(told->nonce)) {
    if (!group->roster.has(from.peer)) return;
    std::erase_if(told->processes, [&](uint64_t one) { return !group->roster.has(one); });
  }
  learn_formed(told->nonce, told->processes, &from);
}

void ControlGossip::tell_members(uint64_t nonce) {
  const auto known = formation_barrier_.of(nonce);
  const ControlGroup* group = groups_.find(nonce);
  if (group != nullptr && !known.empty()) tell_formed(nonce, group->roster, known, nullptr);
}

void ControlGossip::tell_formed(uint64_t nonce, const LinkTopology& roster,
                                const std::vector<uint64_t>& processes,
                                const ControlConnection* from) {
  const auto frame = GroupFormed{nonce, processes}.frame();
  sender_.for_each([&](ControlConnection& c) {
    const bool heard_it = from && from->kind == LinkKind::kLocal && c.kind == LinkKind::kLocal;
    if (c.open() && &c != from && !heard_it && roster.has(c.peer)) sender_.send(c, frame);
  });
}

void ControlGossip::bring_up_to_date(ControlConnection& connection, TimePoint now) {
  for (const auto& [nonce, group] : groups_.all()) {
    const auto known = formation_barrier_.of(nonce);
    if (!known.empty() && group.roster.has(connection.peer))
      sender_.send(connection, GroupFormed{nonce, known}.frame());
  }
  for (const auto& frame : history_.frames(now)) sender_.send(connection, frame);
}

void DepartureHandler::learn_lost(uint64_t id, const std::string& cause,
                                  const ControlConnection* from) {
  if (!history_.record_lost(id, cause)) return;
  // The lost process is notified as well: if it was only stopped, it learns that it was excluded.
  gossip_.pass_on_lost(id, cause, from);
  log(LogLevel::kDebug, name_of(id, groups_, processes_) + " is lost: " + cause);
  events_.on_process_lost(id, Error(ErrorKind::kPeerLost, cause));
  drop_links(id);
}

void DepartureHandler::learn_left(uint64_t id, const ControlConnection* from) {
  if (id == id_ || !history_.record_left(id)) return;
  gossip_.pass_on_left(id, from);
  log(LogLevel::kDebug, name_of(id, groups_, processes_) + " has left");
  events_.on_process_left(id);
  drop_links(id);
}

void DepartureHandler::drop_links(uint64_t id) {
  timer_.hurry();
  if (id != id_) demand_.drop(id);
  history_.forget_old([this](uint64_t one) { return one == id_ || demand_.needed(one); });
}

}  // namespace ringdist
