#include "control/gossip.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "base/serialize.h"
#include "control/wire.h"

namespace ringdist {
namespace {

constexpr size_t kMaxFlood = kMaxFrameBody - 64;  // the record's own fields come with it

}  // namespace

void ControlGossip::flood(const std::vector<std::byte>& payload, TimePoint now) {
  if (payload.size() > kMaxFlood)
    return log(LogLevel::kError,
               "a notice of " + std::to_string(payload.size()) + " bytes was not sent");
  const FloodRecord record{id_, sequence_++, payload};
  ledger_.record_flood(record, now);
  speak([&] { voice_.send_to_all(record.frame()); });
}

void ControlGossip::on_flood(ControlConnection& from, const Frame& frame, TimePoint now) {
  const auto record = FloodRecord::decode(frame.body);
  if (!record || record->origin == id_ || !ledger_.record_flood(*record, now)) return;
  const bool host_heard = from.kind == LinkKind::kLocal && about_formed(record->payload, from.peer);
  pass_on([&] { return make_frame(FrameType::kFlood, frame.body); }, &from, host_heard);
  guard_("a notice was not taken in", [&] { events_.on_flood(record->payload); });
}

template <typename Make>
void ControlGossip::pass_on(const Make& make, const ControlConnection* from, bool host_heard) {
  speak([&] {
    const std::vector<std::byte> frame = make();
    voice_.for_each([&](ControlConnection& c) {
      if (c.open() && &c != from && !(host_heard && c.kind == LinkKind::kLocal))
        voice_.send(c, frame);
    });
  });
}

// Once all members of a group have found each other those of one host are connected, and each hears
// from whoever speaks first there. If all repeated it, n words would be n^3.
bool ControlGossip::formed(uint64_t nonce, const ControlGroup& group) const {
  return std::ranges::all_of(group.roster.processes(),
                             [&](const auto& one) { return arrivals_.has(nonce, one.first); });
}

// Only a member is connected to all others of its host.
bool ControlGossip::about_formed(ConstBytes payload, uint64_t speaker) {
  if (payload.size() < sizeof(uint64_t)) return false;
  const uint64_t nonce = Reader(payload).get<uint64_t>();
  if (groups_.over(nonce, speaker)) return true;
  const ControlGroup* group = groups_.find(nonce);
  return group != nullptr && group->roster.has(speaker) && formed(nonce, *group);
}

// Then they are connected to it, if it is of this host.
bool ControlGossip::host_has_met(uint64_t id) const {
  bool met = false;
  for (const auto& [nonce, group] : groups_.all()) {
    if (!group.roster.has(id)) continue;
    if (!formed(nonce, group) || group.roster.member(id).host != group.roster.my_host())
      return false;
    met = true;
  }
  return met;
}

void ControlGossip::pass_on_lost(uint64_t id, const std::string& cause,
                                 const ControlConnection* from) {
  pass_on([&] { return Fate{id, cause}.frame(FrameType::kLost); }, from, /*host_heard=*/false);
}

void ControlGossip::pass_on_left(uint64_t id, const ControlConnection* from) {
  pass_on([&] { return Fate{id, ""}.frame(FrameType::kLeft); }, from, host_has_met(id));
}

void ControlGossip::learn_formed(uint64_t nonce, const std::vector<uint64_t>& processes,
                                 const ControlConnection* from) {
  const auto ours = [this](uint64_t one) { return groups_.find(one) != nullptr; };
  std::vector<uint64_t> news;
  try {
    news = arrivals_.learn(nonce, processes, ours);
  } catch (...) {
    behind_ = true;  // a part of them may be known now
    throw;
  }
  const ControlGroup* group = groups_.find(nonce);
  if (group != nullptr && !news.empty())
    speak([&] { tell_formed(nonce, group->roster, news, from); });
}

void ControlGossip::on_formed(ControlConnection& from, const Frame& frame) {
  if (const auto told = Formed::decode(frame.body))
    learn_formed(told->nonce, told->processes, &from);
}

void ControlGossip::tell_members(uint64_t nonce) {
  const auto known = arrivals_.of(nonce);
  const ControlGroup* group = groups_.find(nonce);
  if (group != nullptr && !known.empty())
    speak([&] { tell_formed(nonce, group->roster, known, nullptr); });
}

void ControlGossip::tell_formed(uint64_t nonce, const ControlRoster& roster,
                                const std::vector<uint64_t>& processes,
                                const ControlConnection* from) {
  const auto frame = Formed{nonce, processes}.frame();
  voice_.for_each([&](ControlConnection& c) {
    const bool heard_it = from && from->kind == LinkKind::kLocal && c.kind == LinkKind::kLocal;
    if (c.open() && &c != from && !heard_it && roster.has(c.peer)) voice_.send(c, frame);
  });
}

void ControlGossip::bring_up_to_date(ControlConnection& connection, TimePoint now) {
  for (const auto& [nonce, group] : groups_.all()) {
    const auto known = arrivals_.of(nonce);
    if (!known.empty() && group.roster.has(connection.peer))
      voice_.send(connection, Formed{nonce, known}.frame());
  }
  for (const auto& frame : ledger_.frames(now)) voice_.send(connection, frame);
}

void ControlGossip::catch_up(TimePoint now) {
  if (!behind_) return;
  voice_.for_each([&](ControlConnection& c) {
    if (c.open()) bring_up_to_date(c, now);
  });
  behind_ = false;
}

}  // namespace ringdist
