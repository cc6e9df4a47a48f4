#include "control/gossip.h"

#include <algorithm>
#include <string>

#include "base/log.h"
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
  const bool local = from.kind == LinkKind::kLocal;
  pass_on([&] { return make_frame(FrameType::kFlood, frame.body); }, &from,
          local ? std::optional(from.peer) : std::nullopt);
  guard_("a notice was not taken in", [&] { events_.on_flood(record->payload); });
}

template <typename Make>
void ControlGossip::pass_on(const Make& make, const ControlConnection* from,
                            std::optional<uint64_t> speaker) {
  speak([&] {
    const std::vector<std::byte> frame = make();
    const auto told = speaker ? groups_.acquaintances(*speaker) : std::vector<uint64_t>{};
    voice_.for_each([&](ControlConnection& c) {
      const bool heard = c.kind == LinkKind::kLocal && std::ranges::binary_search(told, c.peer);
      if (c.open() && &c != from && !heard) voice_.send(c, frame);
    });
  });
}

void ControlGossip::pass_on_lost(uint64_t id, const std::string& cause,
                                 const ControlConnection* from) {
  pass_on([&] { return Fate{id, cause}.frame(FrameType::kLost); }, from, std::nullopt);
}

void ControlGossip::pass_on_left(uint64_t id, const ControlConnection* from) {
  pass_on([&] { return Fate{id, ""}.frame(FrameType::kLeft); }, from, id);
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
  ControlGroup* group = groups_.find(nonce);
  if (group == nullptr || news.empty()) return;
  look_whether_formed(nonce, *group);
  speak([&] { tell_formed(nonce, group->roster, news, from); });
}

void ControlGossip::look_whether_formed(uint64_t nonce, ControlGroup& group) {
  group.formed =
      group.formed || std::ranges::all_of(group.roster.processes(), [&](const auto& one) {
        return arrivals_.has(nonce, one.first);
      });
}

void ControlGossip::on_formed(ControlConnection& from, const Frame& frame) {
  if (const auto told = Formed::decode(frame.body))
    learn_formed(told->nonce, told->processes, &from);
}

void ControlGossip::tell_members(uint64_t nonce) {
  const auto known = arrivals_.of(nonce);
  ControlGroup* group = groups_.find(nonce);
  if (group == nullptr || known.empty()) return;
  look_whether_formed(nonce, *group);
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
