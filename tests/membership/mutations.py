"""The bugs. Each one is a text of a file and its replacement."""

from dataclasses import dataclass

CONSENSUS = "csrc/membership/paxos/"
WORLD = "tests/cpp/support/membership/"


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "half is a quorum",
        CONSENSUS + "quorum_rule.h",
        "int needed() const { return size_ / 2 + 1; }",
        "int needed() const { return (size_ + 1) / 2; }",
    ),
    Mutation(
        "an acceptor forgets what it accepted",
        CONSENSUS + "decision.h",
        "    accepted_ = {ballot, value};\n",
        "    static_cast<void>(value);\n",
    ),
    Mutation(
        "a dead voter's vote is forgotten",
        CONSENSUS + "quorum_rule.h",
        "return is_majority(votes, store) || are_all_living(votes, dead);",
        "return 2 * votes.count() > size_ - dead.count() || is_majority(votes, store) ||\n"
        "           are_all_living(votes, dead);",
    ),
    Mutation(
        "an acceptor ignores ballots",
        CONSENSUS + "decision.h",
        "    if (ballot < promised_) return false;\n",
        "",
    ),
    Mutation(
        "silence is proof of death",
        CONSENSUS + "paxos_instance.cc",
        "  round_.emplace(seen_, dead(), now);\n",
        "  for (int rank = 0; rank < size(); ++rank)\n"
        "    if (others_.is_silent(rank, now)) others_.note_death(rank);\n"
        "  round_.emplace(seen_, dead(), now);\n",
    ),
    Mutation(
        "where the rest is dead, some of the living do",
        CONSENSUS + "quorum_rule.h",
        "      if (!votes.has(rank) && !dead.has(rank)) return false;\n",
        "      if (!votes.has(rank) && !dead.has(rank)) return dead.count() > 0;\n",
    ),
    Mutation(
        "ops begin before all have installed",
        CONSENSUS + "generation_log.cc",
        "    if (!installed_->has(static_cast<int>(rank))) return;\n",
        "    static_cast<void>(rank);\n",
    ),
    Mutation(
        "a proposer does not read before it writes",
        CONSENSUS + "paxos_instance.cc",
        "acceptor_.accepted(), delegate_.stop_and_report());\n",
        "acceptor_.accepted(), delegate_.stop_and_report());\n"
        "  if (seen_.round > 1) return propose(now);\n",
    ),
    Mutation(
        "a proposer writes its own value, not what it read",
        CONSENSUS + "ballot_round.h",
        "    if (has && (!latest || latest->ballot < has->ballot)) latest = has;\n",
        "    static_cast<void>(has);\n",
    ),
    Mutation(
        "a woken process hears of deaths before it reads what the dead had sent",
        WORLD + "world.cc",
        "      put_on_wire(index, other->index(), {});\n",
        "      in_process(other->index(), [this, index, its = other->index()] {\n"
        "        deliver({index, its, {}, false});\n"
        "      });\n",
    ),
    Mutation(
        "who is near is not told before a decision is installed",
        CONSENSUS + "generation_log.cc",
        "      near_have_it &= delegate_.send_near(process, addressed(rank, message));\n",
        "      near_have_it = near_have_it && (!decided.mine || (send(rank, message), true));\n",
    ),
    Mutation(
        "the store's vote is not compared",
        WORLD + "stores.h",
        "    if (vote != before) return false;\n",
        "    static_cast<void>(before);\n",
    ),
    Mutation(
        "newcomers are forgotten",
        CONSENSUS + "ballot_round.cc",
        "    if (out.rank_of(process) >= 0 || out.members.size() >= most) continue;\n",
        "    if (out.rank_of(process) >= 0 || out.survivor_count > 2) continue;\n",
    ),
    Mutation(
        "who has not found the others is taken to know them",
        CONSENSUS + "ballot_round.cc",
        "    out.needs_rendezvous |= !info->second.formed;\n",
        "",
    ),
    Mutation(
        "a dead store goes on",
        CONSENSUS + "ballot_round.cc",
        "  if (std::all_of(staying.begin(), staying.end(), reaches)) return old;\n",
        "  if (std::any_of(staying.begin(), staying.end(), reaches) || !old.empty()) return old;\n",
    ),
    Mutation(
        "who has installed does not say so again",
        CONSENSUS + "generation_log.cc",
        "    tell_installed(now);\n  }\n",
        "    resend_at_ = now + timeouts_.resend;\n  }\n",
    ),
    Mutation(
        "a store that does not answer is not asked again",
        CONSENSUS + "paxos_instance.cc",
        "  read_store_at_ = now + timeouts_.proposal_timeout;\n",
        "  read_store_at_ = TimePoint::max();\n",
    ),
)
