// A group's last phase before its first operation: who has connected says so, and no rank's
// connect_group() returns before all have. So a process whose first operations are done may end,
// and take the store with it: nobody looks for members any more. Inside a host everyone tells
// everyone; representatives pass on what comes from, and goes to, other hosts. Words on one link
// stay in order: that a process had connected is known before its end is.
#include <algorithm>

#include "control/loop.h"

namespace ringdist {
namespace {

constexpr size_t kMaxUnknown = 4096;  // groups that others know of before this process does
constexpr Duration kLeftTime = std::chrono::minutes(1);

}  // namespace

bool ControlLoop::formed(uint64_t nonce, uint64_t process) const {
  const auto known = formed_.find(nonce);
  return known != formed_.end() && known->second.contains(process);
}

void ControlLoop::on_formed(ControlConnection& connection, const Frame& frame) {
  if (const auto told = Formed::decode(frame.body))
    learn_formed(told->nonce, told->processes, &connection);
}

void ControlLoop::learn_formed(uint64_t nonce, const std::vector<uint64_t>& processes,
                               const ControlConnection* from) {
  if (!formed_.contains(nonce)) {
    formed_order_.push_back(nonce);
    if (formed_order_.size() > kMaxUnknown) {
      const auto old = std::ranges::find_if(
          formed_order_, [this](uint64_t one) { return !groups_.contains(one); });
      if (old != formed_order_.end()) forget_formed(uint64_t{*old});
    }
  }
  std::set<uint64_t>& known = formed_[nonce];
  std::vector<uint64_t> news;
  for (const uint64_t process : processes)
    if (known.insert(process).second) news.push_back(process);
  if (const auto group = groups_.find(nonce); group != groups_.end() && !news.empty())
    tell_formed(nonce, group->second.roster, news, from);
}

void ControlLoop::tell_formed(uint64_t nonce, const ControlRoster& roster,
                              const std::vector<uint64_t>& processes,
                              const ControlConnection* from) {
  const auto frame = Formed{nonce, processes}.frame();
  sockets_.for_each([&](ControlConnection& c) {
    const bool heard_it = from && from->kind == LinkKind::kLocal && c.kind == LinkKind::kLocal;
    if (c.open() && &c != from && !heard_it && roster.has(c.peer)) sockets_.send(c, frame);
  });
}

void ControlLoop::tell_all_formed(ControlConnection& connection) {
  for (const auto& [nonce, group] : groups_) {
    const auto known = formed_.find(nonce);
    if (known == formed_.end() || !group.roster.has(connection.peer)) continue;
    sockets_.send(connection, Formed{nonce, {known->second.begin(), known->second.end()}}.frame());
  }
}

// A group that all ranks of this process have left stays until every member has heard so: one that
// has not linked yet would look for us until its time is over.
void ControlLoop::forget_left() {
  const auto heard = [this](uint64_t nonce, const Group& group) {
    return std::ranges::all_of(group.roster.processes(), [&](const auto& member) {
      return formed(nonce, member.first) || gone(member.first);
    });
  };
  std::erase_if(groups_, [&](const auto& entry) {
    const auto& [nonce, group] = entry;
    if (!group.left()) return false;
    if (!heard(nonce, group) && now_ - group.left_at < kLeftTime) return false;
    forget_formed(nonce);
    return true;
  });
}

void ControlLoop::forget_formed(uint64_t nonce) {
  formed_.erase(nonce);
  std::erase(formed_order_, nonce);
}

// Success once all have connected, but for those that have left: of these the engine tells.
std::optional<Error> ControlLoop::formed_answer(const Group& group, const Request& request) {
  for (const auto& [id, member] : group.roster.processes()) {
    if (formed(request.id, id) || gone(id)) continue;
    if (!request.patience->over(now_)) return std::nullopt;
    return Error(ErrorKind::kTimeout, "rank " + std::to_string(member.rank) + " (" +
                                          describe_process(member.pid, member.host_name) +
                                          ") has not found all others of the group in time")
        .blame(member.rank);
  }
  return Error();
}

}  // namespace ringdist
