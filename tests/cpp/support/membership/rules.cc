#include "support/membership/rules.h"

#include <algorithm>
#include <limits>

#include "support/membership/world.h"

namespace ringdist::membership {

void Rules::fail(const std::string& what) {
  if (violation_.empty()) violation_ = what;
  world_.note("WRONG: " + what);
}

void Rules::on_installed(int index, uint64_t from, const Decision& decision) {
  const Process& one = world_.process(index);
  world_.note("process " + std::to_string(index) + " installs generation " +
              std::to_string(decision.generation) + " of ballot " +
              std::to_string(decision.proposed.round) + "." +
              std::to_string(decision.proposed.rank) + ", " +
              std::to_string(decision.members.size()) + " members");
  if (const std::string wrong = lineages_.note(from, one.group_id(), decision); !wrong.empty())
    fail(wrong);
  lineages_.note_installed(one.group_id(), index);
  // The first unfinished op is the smallest one of all survivors.
  int64_t least = std::numeric_limits<int64_t>::max();
  for (uint32_t rank = 0; rank < decision.survivor_count; ++rank) {
    const auto frozen = world_.process(Process::index_of(decision.members[rank])).frozen(from);
    if (!frozen) return fail("a member stays that never ended its ops");
    least = std::min(least, *frozen);
  }
  if (least != decision.first_unfinished) fail("the first unfinished op is wrong");
  check_line(index);
}

void Rules::on_excluded(int index, uint64_t from, const Decision& decision) {
  world_.note("process " + std::to_string(index) + " is excluded from generation " +
              std::to_string(decision.generation));
  if (const std::string wrong = lineages_.note(from, world_.process(index).group_id(), decision);
      !wrong.empty())
    fail(wrong);
  check_line(index);
}

void Rules::on_admitted(int index) {
  lineages_.note_installed(world_.process(index).group_id(), index);
  check_line(index);
}

// Each generation has one successor. Of any two living processes, the generation of one must be an
// ancestor of the other's.
void Rules::check_line(int index) {
  const Process& one = world_.process(index);
  for (const auto& other : world_.processes()) {
    if (!other->alive || !other->is_member()) continue;
    if (!lineages_.on_one_line(one.group_id(), other->group_id()))
      fail("process " + std::to_string(index) + " and process " + std::to_string(other->index()) +
           " went on from the same generation by different decisions");
  }
}

void Rules::on_begun(int index) {
  Process& one = world_.process(index);
  world_.note("generation " + std::to_string(one.generations().generation().number) +
              " begins on process " + std::to_string(index));
  const Decision& decision = *lineages_.decision(one.group_id());
  for (uint32_t rank = 0; rank < decision.survivor_count; ++rank) {
    const int member = Process::index_of(decision.members[rank]);
    if (!lineages_.has_installed(one.group_id(), member))
      fail("ops begin on process " + std::to_string(index) + " before process " +
           std::to_string(member) + " has installed the generation");
  }
}

// A process that ran and could be reached must not be declared lost.
void Rules::on_composed(int index, const Decision& decision) {
  const auto& members = world_.process(index).generations().members();
  for (const LostMember& lost : decision.lost) {
    const int member = Process::index_of(members[static_cast<size_t>(lost.rank)]);
    const std::string name = "process " + std::to_string(member);
    if (lost.cause == LostMember::Cause::kDied) {
      if (world_.process(member).alive) fail(name + " is said to have died");
    } else if (!gives_up(world_.scenario()) && world_.reach().talk(index, member) &&
               world_.now() - world_.reach().since(index, member) >=
                   world_.timeouts().reply_timeout) {
      fail(name + " is given up, though it ran and could be reached");
    }
  }
  check_standings(decision);
}

// A decision must include the promise infos of all survivors: their newcomers, and a store that
// can be used in the next generation.
void Rules::check_standings(const Decision& decision) {
  bool all_reach = true, is_old = false, is_offered = false, any_offer = false;
  bool all_formed = true;
  for (uint32_t rank = 0; rank < decision.survivor_count; ++rank) {
    const Process& member = world_.process(Process::index_of(decision.members[rank]));
    const auto& said = member.info();
    if (!said || member.group_id() != decision.after)
      return;  // the member has already left this generation
    for (const Newcomer& one : said->newcomers)
      if (decision.rank_of(one.process) < 0) fail("a newcomer is left out");
    all_reach = all_reach && said->reaches_store;
    all_formed = all_formed && said->formed;
    is_old = is_old || decision.store == said->store;
    is_offered = is_offered || decision.store == said->offers_store;
    any_offer = any_offer || !said->offers_store.empty();
  }
  if (decision.needs_rendezvous != (!all_formed || !decision.newcomers.empty()))
    fail("members look for each other without need, or do not know all others");
  if (all_reach ? !is_old : any_offer && !is_offered) fail("a wrong store goes on");
}

}  // namespace ringdist::membership
