#include "support/checked/explore.h"

#include <optional>
#include <set>
#include <unordered_map>

namespace ringdist::checked {

void append(std::string& key, uint64_t number) {
  for (; number >= 0x80; number >>= 7) key += static_cast<char>(number | 0x80);
  key += static_cast<char>(number);
}

namespace {

constexpr size_t kMostStates = 4'000'000;

using Past = std::vector<uint64_t>;  // results of a thread's actions so far

struct State {
  std::unique_ptr<Model> memory;
  std::vector<Past> pasts;
  std::set<size_t> rung;  // doorbells that were rung and not yet waited for

  State copy() const { return {memory->copy(), pasts, rung}; }
};

class Search {
 public:
  Search(const Program& program, std::unique_ptr<Model> (*model)(int))
      : program_(program), next_(program.threads.size()) {
    start_.memory = model(static_cast<int>(program.threads.size()));
    start_.pasts.resize(program.threads.size());
  }

  Outcome run() {
    try {
      outcome_.executions = visit(start_);
    } catch (const Wrong& wrong) {
      outcome_.wrong = wrong.what + ", after";
      for (const std::string& step : path_) outcome_.wrong += "\n  " + step;
    }
    outcome_.states = seen_.size();
    return outcome_;
  }

 private:
  // Returns the number of executions that continue from `state`. Results are cached by state.
  double visit(const State& state) {
    const std::string key = key_of(state);
    if (auto known = seen_.find(key); known != seen_.end()) return known->second;
    if (seen_.size() >= kMostStates) throw Wrong{"too many states to see them all"};
    double executions = 0;
    bool all_ended = true;
    for (size_t thread = 0; thread < program_.threads.size(); ++thread) {
      if (state.memory->may_drain(static_cast<int>(thread))) executions += drain(state, thread);
      const std::optional<Action> action = next_action(thread, state.pasts[thread]);
      if (!action) continue;
      all_ended = false;
      executions += act(state, thread, *action);
    }
    if (executions == 0) {
      if (!all_ended) throw Wrong{"all wait"};
      executions = 1;
    }
    seen_.emplace(key, executions);
    return executions;
  }

  double drain(const State& state, size_t thread) {
    State after = state.copy();
    after.memory->drain(static_cast<int>(thread));
    return go_on(after, "  a store of thread " + std::to_string(thread) + " reaches memory");
  }

  double act(const State& state, size_t thread, const Action& action) {
    const size_t place = place_of(action.where);
    if (action.kind == Kind::kRing || action.kind == Kind::kWait) {
      if (action.kind == Kind::kWait && !state.rung.contains(place)) return 0;
      State after = state.copy();
      if (action.kind == Kind::kRing)
        after.rung.insert(place);
      else
        after.rung.erase(place);
      return go_on(after, thread, action, 0);
    }
    double executions = 0;
    const size_t ways = state.memory->ways(static_cast<int>(thread), action, place);
    for (size_t way = 0; way < ways; ++way) {
      State after = state.copy();
      path_.push_back(describe(thread, action));  // for the message if perform() throws
      const uint64_t result = after.memory->perform(static_cast<int>(thread), action, place, way);
      path_.pop_back();
      executions += go_on(after, thread, action, result);
    }
    return executions;
  }

  double go_on(State& after, size_t thread, const Action& action, uint64_t result) {
    after.pasts[thread].push_back(result);
    const bool gets = action.kind == Kind::kLoad || action.kind == Kind::kRead;
    return go_on(after, describe(thread, action) + (gets ? ": " + std::to_string(result) : ""));
  }

  double go_on(const State& after, std::string step) {
    path_.push_back(std::move(step));
    const double executions = visit(after);
    path_.pop_back();
    return executions;
  }

  // Returns the next action of a thread that has the given past, or nothing if the thread has
  // ended.
  std::optional<Action> next_action(size_t thread, const Past& past) {
    auto [known, added] = next_[thread].try_emplace(past);
    if (!added) return known->second;
    try {
      const Replay replay(past);
      program_.threads[thread]();
    } catch (const Replay::Stop& stop) {
      known->second = stop.action;
    }
    return known->second;
  }

  size_t place_of(const void* where) {
    return places_.try_emplace(where, places_.size()).first->second;
  }

  std::string key_of(const State& state) const {
    std::string key;
    for (const Past& past : state.pasts) {
      append(key, past.size());
      for (const uint64_t value : past) append(key, value);
    }
    append(key, state.rung.size());
    for (const size_t doorbell : state.rung) append(key, doorbell);
    state.memory->append_key(key);
    return key;
  }

  std::string describe(size_t thread, const Action& action) {
    auto named = program_.names.find(action.where);
    std::string out =
        "thread " + std::to_string(thread) + " " + name_of(action.kind) + " " +
        (named == program_.names.end() ? "place " + std::to_string(place_of(action.where))
                                       : named->second);
    if (action.kind == Kind::kStore || action.kind == Kind::kWrite)
      out += " = " + std::to_string(action.value);
    if (action.kind == Kind::kStore || action.kind == Kind::kLoad)
      out += ", " + name_of(action.order);
    return out;
  }

  const Program& program_;
  State start_;
  std::vector<std::map<Past, std::optional<Action>>> next_;
  std::map<const void*, size_t> places_;
  std::unordered_map<std::string, double> seen_;
  std::vector<std::string> path_;
  Outcome outcome_;
};

}  // namespace

Outcome explore(const Program& program, std::unique_ptr<Model> (*model)(int threads)) {
  return Search(program, model).run();
}

}  // namespace ringdist::checked
