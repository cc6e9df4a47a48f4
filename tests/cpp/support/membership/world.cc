#include "support/membership/world.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "base/check.h"

namespace ringdist::membership {
namespace {

constexpr uint64_t kFirstNonce = 1;

NetworkCosts costs_of(const Scenario& scenario) {
  NetworkCosts out = default_costs(kDefaultRate, Milliseconds(scenario.latency));
  out.inside = {};
  out.inside.latency = std::chrono::microseconds(5);
  return out;
}

}  // namespace

PaxosTimeouts World::usual_pace() {
  return {std::chrono::seconds(1), Milliseconds(100), Milliseconds(50), Milliseconds(10),
          Milliseconds(200)};
}

World::World(const Scenario& scenario, const PaxosTimeouts& timeouts, std::ostream* trace)
    : scenario_(scenario),
      timeouts_(timeouts),
      trace_(trace),
      costs_(costs_of(scenario)),
      wire_(costs_, *this, scenario.seed, Milliseconds(scenario.jitter)),
      random_(scenario.seed) {
  stores_.add("the first", scenario.store_host, scenario.store_process);
  std::vector<ProcessId> members;
  for (const int host : scenario.hosts) members.push_back(Process::id_of(add_process(host)));
  for (const auto& one : processes_)
    one->be_member(std::make_unique<GenerationLog>(one->id(), GenerationId{0, kFirstNonce}, members,
                                                   timeouts_, *one),
                   kFirstNonce, 0);
  injector_.plan(scenario.faults);
}

int World::add_process(int host) {
  const int index = wire_.add_core(host);
  processes_.push_back(std::make_unique<Process>(*this, index, host));
  reach_.add_process(now());
  return index;
}

// ---- events

Outcome World::run() {
  // The limit is long after every process must have detected the loss and retried.
  const Duration limit = 6 * timeouts_.reply_timeout + std::chrono::seconds(3);
  for (int i = 0; i < static_cast<int>(processes_.size()); ++i)
    at(drawn(0, 5), [this, i] { in_process(i, [this, i] { process(i).run_op(); }); });
  bool restored = false;
  for (TimePoint look = now(); !is_wrong(); look += timeouts_.reply_timeout / 4) {
    while (!is_wrong() && wire_.next() && *wire_.next() <= look) {
      injector_.before_event(outcome_.events++);
      wire_.move_to(*wire_.next());
    }
    if (is_wrong()) break;
    wire_.move_to(look);
    if (now() < injector_.last()) continue;
    const std::string open =
        injector_.has_counted() && wire_.next() ? "faults are to come" : settling_.open();
    const bool late = now() >= injector_.last() + limit;
    const bool must_settle = late && !gives_up(scenario_);
    if (const std::string broken = must_settle ? settling_.broken() : ""; !broken.empty())
      rules_.fail("not settled: " + broken);
    if (open.empty() || late) {
      // Messages that were held up are delivered at last, and must do no harm.
      if (restored) break;
      restored = true;
      injector_.restore();
    }
    callers_.detect_all_soon();
  }
  outcome_.violation = rules_.violation();
  outcome_.took = now() - NetworkModel::kStart;
  return outcome_;
}

void World::at(Duration after, Action action) {
  actions_.push_back(std::move(action));
  wire_.at(now() + after, static_cast<int>(actions_.size()) - 1);
}

void World::on_time(int id) {
  const Action action = std::exchange(actions_[static_cast<size_t>(id)], nullptr);
  action();
}

void World::in_process(int index, Action action) {
  Process& one = process(index);
  if (!one.alive) return;
  if (one.stopped) {
    one.inbox.push_back(std::move(action));
    return;
  }
  action();
  handled(one);
}

void World::handled(Process& one) {
  if (one.alive && one.is_member() && !is_wrong()) schedule_tick(one);
}

void World::schedule_tick(Process& one) {
  const auto next = one.generations().next();
  if (!next || (one.tick_at && *one.tick_at <= *next)) return;
  const TimePoint when = std::max(*next, now());
  one.tick_at = when;
  const int index = one.index();
  at(when - now(), [this, index, when] {
    Process& its = process(index);
    if (its.tick_at == when) its.tick_at.reset();
    in_process(index, [this, index] { process(index).generations().tick(now()); });
  });
}

// Messages that the process had sent inside its host are delivered, and the kernel reports the
// death after them. For each other host, a random tail of its messages is lost.
void World::kill(int index) {
  Process& one = process(index);
  if (!one.alive) return;
  one.alive = false;
  note("process " + std::to_string(index) + " dies");
  if (one.stopped) wire_.hold(index, false);  // the kernel has everything that it sent before
  std::map<int, bool> lost;                   // by receiver: all later messages are lost, too
  for (auto& [id, message] : on_its_way_) {
    if (message.from != index || process(message.to).host() == one.host()) continue;
    bool& rest = lost[message.to];
    rest = rest || random_() % 2 == 0;
    message.lost = rest;
  }
  stores_.lose_of(index);
  update_reach();
  for (const auto& other : processes_) {
    if (!other->alive || other->index() == index) continue;
    if (other->host() == one.host()) {
      put_on_wire(index, other->index(), {});
    } else {
      callers_.shrink_within(other->index(), scenario_.told);  // the control plane reports the loss
    }
  }
  injector_.note_fault();
}

void World::update_reach() {
  std::vector<bool> answers;
  for (const auto& one : processes_)
    answers.push_back(one->alive && !one->stopped && has_read_the_dead(one->index()));
  reach_.update(now(), [&](int a, int b) {
    return answers[static_cast<size_t>(a)] && answers[static_cast<size_t>(b)] &&
           gets_through(a, b) && gets_through(b, a);
  });
  // The control plane detects the change after the reply timeout.
  const int64_t silence = std::chrono::duration_cast<Milliseconds>(timeouts_.reply_timeout).count();
  for (const auto& one : processes_) callers_.detect_within(one->index(), silence, silence + 100);
}

// True if the process has processed the deaths on its host. Before that, it does not vote together
// with processes that have.
bool World::has_read_the_dead(int index) const {
  return std::ranges::all_of(processes_, [&](const auto& other) {
    if (other->alive || other->host() != process(index).host()) return true;
    const auto told = told_.find(index);
    return told != told_.end() && told->second.contains(other->index());
  });
}

bool World::gets_through(int from, int to) const {
  const int its = process(from).host(), other = process(to).host();
  const auto line = lines_.find({from, to});
  const bool stalls = line != lines_.end() && line->second.stalled_until > now();
  return !stalls && !injector_.is_cut(its, other) && !injector_.loses(its, other);
}

// ---- messages

void World::send(int from, int to, const ConsensusMessage& message) {
  if (message.kind == ConsensusMessageKind::kAccept && message.decision->proposed == message.ballot)
    rules_.on_composed(from, *message.decision);
  if (trace_)
    note("  " + std::to_string(from) + " to " + std::to_string(to) + ": " +
         std::string(message_name(message.kind)) + " of ballot " +
         std::to_string(message.ballot.round) + "." + std::to_string(message.ballot.rank) +
         ", generation " + std::to_string(message.generation.number));
  put_on_wire(from, to, encode(message));
}

void World::put_on_wire(int from, int to, std::vector<std::byte> bytes) {
  Transfer transfer;
  transfer.from = from;
  transfer.to = to;
  transfer.flow = static_cast<uint64_t>(from) << 32 | static_cast<uint64_t>(to);
  transfer.bytes = static_cast<int64_t>(bytes.size());
  transfer.inside = process(from).host() == process(to).host();
  ++outcome_.messages;
  on_its_way_[wire_.send(transfer)] = {from, to, std::move(bytes), false};
}

void World::on_arrived(int id) {
  const auto found = on_its_way_.extract(id);
  const OnItsWay& message = found.mapped();
  const int from = process(message.from).host(), to = process(message.to).host();
  if (message.lost || (injector_.loses(from, to) && is_unlucky(33))) return;
  lines_[{message.from, message.to}].waiting.push_back(message);
  move_on(message.from, message.to);
}

void World::stall(int from, int to, Duration lasts) {
  if (from == to) return;
  Line& line = lines_[{from, to}];
  line.stalled_until = std::max(line.stalled_until, now() + lasts);
  update_reach();
  at(lasts, [this, from, to] {
    move_on(from, to);
    update_reach();
  });
}

void World::move_on(int from, int to) {
  Line& line = lines_[{from, to}];
  while (now() >= line.stalled_until && !line.waiting.empty()) {
    const OnItsWay message = std::move(line.waiting.front());
    line.waiting.pop_front();
    in_process(to, [this, message] { deliver(message); });
  }
}

bool World::is_unlucky(int percent) { return random_() % 100 < static_cast<uint64_t>(percent); }

bool World::is_full() { return scenario_.rough && is_unlucky(5); }

void World::tell_death(int index, int dead) {
  Process& to = process(index);
  told_[index].insert(dead);
  update_reach();
  to.drop_candidate(Process::id_of(dead));
  if (to.is_member()) to.generations().on_death(Process::id_of(dead), now());
}

void World::deliver(const OnItsWay& message) {
  Process& to = process(message.to);
  if (message.bytes.empty()) {
    tell_death(message.to, message.from);
    return callers_.shrink_within(message.to, 50);
  }
  const auto decoded = decode_consensus(message.bytes);
  check(decoded.ok(), "a message of this very program is not understood");
  if (!to.is_member())
    return deliver_to_newcomer(to, Process::id_of(message.from), decoded.value());
  to.generations().on_message(Process::id_of(message.from), decoded.value(), now());
}

void World::deliver_to_newcomer(Process& one, ProcessId from, const ConsensusMessage& message) {
  auto admitted = GenerationLog::admitted(one.id(), message, timeouts_, one, now());
  if (!admitted) return;
  one.be_member(std::move(admitted), message.generation.nonce, store_named(message.made_by->store));
  note("process " + std::to_string(one.index()) + " is admitted to generation " +
       std::to_string(message.generation.number));
  for (const int dead : told_[one.index()]) one.generations().on_death(Process::id_of(dead), now());
  rules_.on_admitted(one.index());
  one.generations().on_message(from, message, now());
}

// ---- the store

bool World::reaches_store(int index) const {
  const Process& one = process(index);
  const int store = one.store(), host = stores_.host(store);
  const int server = stores_.process(store);
  if (server >= 0 && process(server).stopped) return false;
  return stores_.alive(store) && !injector_.is_cut(one.host(), host) &&
         !injector_.is_cut(host, one.host());
}

int World::store_named(const std::string& name) {
  if (const int known = stores_.named(name); known >= 0) return known;
  const int server = std::stoi(name.substr(name.rfind(' ') + 1));
  return stores_.add(name, process(server).host(), server);
}

// Runs `visit` at the store when the query arrives, and then its result in the process as the
// answer. In rough scenarios some answers never arrive.
void World::ask_store(int index, std::function<Action(const Process&, bool reached)> visit) {
  const int store = process(index).store();
  at(drawn(0, scenario_.rough && is_unlucky(10) ? 400 : 5),
     [this, index, store, visit = std::move(visit)] {
       const Process& one = process(index);
       Action answer = visit(one, reaches_store(index) && one.store() == store);
       if (scenario_.rough && is_unlucky(5)) return;
       at(drawn(0, 5), [this, index, answer = std::move(answer)] { in_process(index, answer); });
     });
}

void World::read_vote(int index, const Ballot& ballot) {
  const GenerationId generation = process(index).generations().generation();
  ask_store(index, [=, this](const Process& one, bool reached) -> Action {
    Result<std::optional<Accepted>> vote = Error(ErrorKind::kSystem, "the store does not answer");
    if (reached) {
      const std::string text = stores_.get(one.store(), generation.nonce);
      vote = text.empty() ? std::optional<Accepted>() : decode_vote(text).value();
    }
    return
        [=, this] { process(index).generations().on_vote_read(generation, ballot, vote, now()); };
  });
}

void World::cast_vote(int index, const Ballot& ballot, const std::optional<Accepted>& before,
                      const Accepted& vote) {
  const GenerationId generation = process(index).generations().generation();
  const std::string old = before ? encode_vote(*before) : "";
  ask_store(index, [=, this, text = encode_vote(vote)](const Process& one, bool reached) -> Action {
    const bool cast = reached && stores_.compare_set(one.store(), generation.nonce, old, text);
    return
        [=, this] { process(index).generations().on_vote_cast(generation, ballot, cast, now()); };
  });
}

// ---- callbacks of processes

void World::on_installed(int index, uint64_t from, const Decision& decision) {
  outcome_.last_installed = now() - NetworkModel::kStart;
  rules_.on_installed(index, from, decision);
}

void World::on_begun(int index) {
  outcome_.last_begun = now() - NetworkModel::kStart;
  rules_.on_begun(index);
  process(index).run_op();
}

void World::on_excluded(int index, uint64_t from, const Decision& decision) {
  rules_.on_excluded(index, from, decision);
}

void World::note(const std::string& what) {
  if (trace_)
    *trace_ << std::chrono::duration_cast<std::chrono::microseconds>(now() - NetworkModel::kStart)
                   .count()
            << " us, event " << outcome_.events << ": " << what << "\n";
}

Duration World::drawn(int64_t least_ms, int64_t most_ms) {
  const auto span = static_cast<uint64_t>(most_ms - least_ms) * 1000 + 1;
  return Milliseconds(least_ms) + std::chrono::microseconds(static_cast<int64_t>(random_() % span));
}

}  // namespace ringdist::membership
