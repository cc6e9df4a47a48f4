// Message orders that break agreement if one rule is missing, and that random seeds do not find.
// Each test spells out its order. Each process has its own clock.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "membership/paxos/generation_log.h"
#include "support/membership/lineages.h"

namespace ringdist {
namespace {

using membership::Lineages;
using Pairs = std::function<bool(int from, int to)>;

class Orders;

class OrderedProcess final : public GenerationLogDelegate {
 public:
  OrderedProcess(Orders& orders, int index, int delegate)
      : orders_(orders), index_(index), delegate_(delegate) {}

  void send(ProcessId to, const ConsensusMessage& message) override;
  bool is_near(ProcessId process) override;
  bool send_near(ProcessId to, const ConsensusMessage& message) override {
    send(to, message);
    return true;
  }
  PromiseInfo stop_and_report() override { return {1, "store", true, "", newcomers}; }
  void read_vote(const Ballot&) override {}
  void cast_vote(const Ballot&, const std::optional<Accepted>&, const Accepted&) override {}
  void on_installed(const Decision& decision) override { go_on(decision); }
  void on_begun() override { has_begun = alive; }
  void on_excluded(const Decision& decision) override { go_on(decision); }

  bool alive = true;
  bool has_begun = false;
  int sends_left = -1;  // sends until it dies; -1 if it lives
  TimePoint now{std::chrono::hours(1)};
  std::vector<Newcomer> newcomers;
  std::set<int> dead;  // deaths reported by its kernel
  std::unique_ptr<GenerationLog> generations;
  uint64_t group_id = 1;

 private:
  void go_on(const Decision& decision);

  Orders& orders_;
  const int index_;
  const int delegate_;
};

class Orders : public testing::Test {
 public:
  static ProcessId id(int index) { return static_cast<ProcessId>(index) + 1; }

  void add(int delegate) {
    all_.push_back(std::make_unique<OrderedProcess>(*this, size(), delegate));
  }
  void make(const std::vector<int>& hosts) {
    std::vector<ProcessId> members;
    for (const int delegate : hosts) {
      hosts_.push_back(delegate);
      add(delegate);
      members.push_back(id(size() - 1));
    }
    for (int i = 0; i < size(); ++i)
      at(i).generations =
          std::make_unique<GenerationLog>(id(i), GenerationId{0, 1}, members, timeouts_, at(i));
  }
  // Adds a newcomer on the given host. Promises of `knows_it` include it from then on.
  int add_newcomer(int delegate, int knows_it) {
    hosts_.push_back(delegate);
    add(delegate);
    at(knows_it).newcomers.push_back({id(size() - 1), ""});
    return size() - 1;
  }
  int size() const { return static_cast<int>(all_.size()); }
  OrderedProcess& at(int index) { return *all_[static_cast<size_t>(index)]; }
  int delegate(int index) const { return hosts_[static_cast<size_t>(index)]; }

  void begin(int index) { at(index).generations->begin(at(index).now); }
  void pass(int index, int64_t ms) {
    at(index).now += Milliseconds(ms);
    at(index).generations->tick(at(index).now);
  }
  // Delivers messages between the selected pairs until there are none.
  void deliver(const Pairs& pairs) {
    for (bool any = true; any;) {
      any = false;
      for (auto& [pair, line] : lines_) {
        if (line.empty() || !at(pair.second).alive || !pairs(pair.first, pair.second)) continue;
        const auto message = std::move(line.front());
        line.pop_front();
        receive(pair.first, pair.second, message);
        any = true;
        break;
      }
    }
  }
  // The kernel of its host reports the death after the messages that it had sent.
  void die(int index) {
    at(index).alive = false;
    for (int other = 0; other < size(); ++other)
      if (other != index && delegate(other) == delegate(index))
        lines_[{index, other}].push_back({});
  }
  void lose(int from, int to) { lines_[{from, to}].clear(); }
  void put(int from, int to, const ConsensusMessage& message) {
    lines_[{from, to}].emplace_back(message);
  }
  void note(uint64_t from, uint64_t to, const Decision& decision) {
    EXPECT_EQ(lineages_.note(from, to, decision), "");
  }

  void expect_one_line() {
    for (int a = 0; a < size(); ++a)
      for (int b = 0; b < a; ++b)
        if (at(a).alive && at(b).alive && at(a).generations && at(b).generations) {
          EXPECT_TRUE(lineages_.on_one_line(at(a).group_id, at(b).group_id))
              << "processes " << b << " and " << a;
        }
  }

 protected:
  void receive(int from, int to, const std::optional<ConsensusMessage>& message) {
    OrderedProcess& one = at(to);
    if (!message) {
      one.dead.insert(from);
      if (one.generations) one.generations->on_death(id(from), one.now);
      return;
    }
    if (!one.generations) {
      one.generations = GenerationLog::admitted(id(to), *message, timeouts_, one, one.now);
      if (!one.generations) return;
      one.group_id = message->generation.nonce;
      for (const int dead : one.dead) one.generations->on_death(id(dead), one.now);
    }
    one.generations->on_message(id(from), *message, one.now);
  }

  const PaxosTimeouts timeouts_{std::chrono::seconds(1), Milliseconds(100), Milliseconds(50),
                                Milliseconds(10), Milliseconds(200)};
  std::vector<int> hosts_;
  std::vector<std::unique_ptr<OrderedProcess>> all_;
  std::map<std::pair<int, int>, std::deque<std::optional<ConsensusMessage>>> lines_;
  Lineages lineages_;
};

void OrderedProcess::send(ProcessId to, const ConsensusMessage& message) {
  if (!alive) return;
  if (sends_left == 0) return orders_.die(index_);
  if (sends_left > 0) --sends_left;
  orders_.put(index_, static_cast<int>(to) - 1, message);
}

bool OrderedProcess::is_near(ProcessId process) {
  return orders_.delegate(static_cast<int>(process) - 1) == delegate_;
}

void OrderedProcess::go_on(const Decision& decision) {
  if (!alive) return;
  const uint64_t from = std::exchange(group_id, nonce_of(decision));
  orders_.note(from, group_id, decision);
}

// A has decided without D, C and E, sent this to D, and died. D gets a report of the death from
// another host before it reads A's message. D must not vote for a value that D, C and E could
// decide without A.
TEST_F(Orders, ADeathThatIsPassedOnDoesNotOvertakeWhatTheDeadHadSaid) {
  enum { D, A, B, X, Y, C, E };
  make({0, 0, 0, 0, 0, 1, 1});
  const auto with_a = [](int other) { return other == B || other == X || other == Y; };
  const Pairs from_a = [&](int from, int to) { return from == A && with_a(to); };
  const Pairs to_a = [&](int from, int to) { return to == A && with_a(from); };
  const auto between = [](int one, int other) {
    return [=](int from, int to) { return from == one && to == other; };
  };
  begin(A);
  pass(A, 50);
  deliver(from_a);
  deliver(to_a);
  pass(A, 1100);
  for (int i = 0; i < 3; ++i) {  // leads to a later ballot: A writes before the acceptances arrive
    pass(A, 1100);
    deliver(from_a);
    deliver(to_a);
  }
  deliver(from_a);
  at(A).sends_left = 1;  // A decides, sends to D, and dies
  deliver(to_a);
  ASSERT_FALSE(at(A).alive);
  deliver(between(A, B));
  begin(E);
  pass(E, 200);
  deliver(between(E, B));
  deliver(between(B, E));
  for (const int dead : {B, X, Y}) die(dead);
  deliver([&](int from, int to) { return to == D && with_a(from); });
  begin(C);
  pass(C, 200);
  for (int i = 0; i < 4 && at(C).generations->generation().number == 0; ++i) {
    for (const int other : {D, E}) {
      deliver(between(C, other));
      deliver(between(other, C));
    }
    pass(C, 300);
  }
  deliver(between(A, D));  // A's decision arrives at last
  expect_one_line();
  for (int i = 0; i < 4; ++i) {
    pass(C, 300);
    deliver([&](int from, int to) { return from >= D && (to == D || to == C || to == E); });
  }
  expect_one_line();
}

// Y has promised a ballot of W when it receives the decision of an earlier ballot. Before it
// installs, it passes the decision to Z on its host. This must count for Z, which has accepted W's
// value since.
TEST_F(Orders, WhatIsLearnedLateHoldsAsOfWhatWasPromised) {
  enum { Y, A, B, X, V, W, Z, N };
  make({1, 0, 0, 0, 0, 0, 1});
  for (int i = 0; i < 5; ++i) add_newcomer(0, A);
  const auto with_a = [](int other) { return other == B || other == X || other == V; };
  const auto among = [](std::set<int> from, std::set<int> to) {
    return [=](int a, int b) { return from.contains(a) && to.contains(b); };
  };
  begin(A);
  pass(A, 50);
  deliver(among({A}, {B, X, V, Y}));
  deliver(among({B, X, V, Y}, {A}));
  pass(A, 1100);  // W and Z are silent
  deliver(among({A}, {B, X, V}));
  begin(W);
  pass(W, 200);
  at(A).sends_left = 1;  // A decides, sends to Y, and dies
  deliver(among({B, X, V}, {A}));
  ASSERT_FALSE(at(A).alive);
  for (const int dead : {B, X, V}) die(dead);
  deliver([&](int from, int to) { return to == W && (from == A || with_a(from)); });
  for (int i = 0; i < 2; ++i) {
    deliver(among({W}, {Y, Z}));
    if (i == 0) deliver(among({Y, Z}, {W}));
  }
  deliver(among({Y, Z}, {W}));
  pass(W, 100);
  deliver(among({W}, {Z}));
  deliver(among({A}, {Y}));
  deliver(among({Y}, {Z}));
  begin(Y);
  pass(Y, 50);
  const std::set<int> newcomers{N, N + 1, N + 2, N + 3, N + 4};
  deliver(among(newcomers, newcomers));
  deliver(among({A, B, X, V}, newcomers));
  for (int i = 0; i < 6; ++i) {
    deliver(among({Y}, newcomers));
    deliver(among(newcomers, {Y}));
    if (i == 1) pass(Y, 1100);
  }
  die(Y);
  for (const int other : {W, A, B, X, V}) lose(Y, other);
  deliver(among({Y}, {Z}));
  for (int i = 0; i < 6; ++i) {
    pass(W, 300);
    deliver(among({W, Z}, {W, Z}));
  }
  expect_one_line();
}

}  // namespace
}  // namespace ringdist
