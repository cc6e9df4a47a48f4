// Ranks negotiate over a network that delivers in any order but that of one sender to one receiver.
// Each run is drawn from a seed.
#include "negotiation/negotiator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/topologies.h"

namespace ringdist {
namespace {

class NegotiatorRank final : public NegotiatorHost {
 public:
  struct Letter {
    int to;
    std::vector<std::byte> bytes;
  };

  NegotiatorRank(const Topology& topology, int rank, NegotiatorOptions options)
      : rank_(rank), negotiator_(*this, topology, rank, options) {}

  void send(int rank, std::vector<std::byte> letter) override {
    outbox.push_back({rank, std::move(letter)});
  }
  void run(const std::vector<CallTable::EntryPtr>& batch) override {
    std::string line = "run";
    for (const auto& entry : batch) {
      line += " " + entry->name + "=" + entry->description.words;
      for (const auto& [rank, values] : entry->extras)
        for (const int64_t value : values)
          line += " " + std::to_string(rank) + ":" + std::to_string(value);
      if (open.erase(entry->name) > 0 && said_.contains(entry->name)) {
        EXPECT_EQ(entry->extras.at(rank_), said_[entry->name]);
      }
      ++times[entry->name];
    }
    log.push_back(line);
    ++running;
  }
  void fail(const std::string& name, const std::string& why) override {
    log.push_back("fail " + name + ": " + why);
    open.erase(name);
    ++failures[name];
  }
  void all_joined(int last) override {
    log.push_back("joined, the last is rank " + std::to_string(last));
    has_joined = false;
    ++joins;
  }

  void call(const std::string& name, CallDescription description,
            std::optional<std::vector<int64_t>> extra = {}) {
    open.insert(name);
    if (extra) said_[name] = *extra;
    negotiator_.call(name, std::move(description), std::move(extra));
  }
  void join() {
    has_joined = true;
    negotiator_.join();
  }
  void receive(int from, const std::vector<std::byte>& letter) {
    const Error error = negotiator_.receive(from, letter);
    EXPECT_FALSE(error) << "rank " << rank_ << ": " << error.what();
  }
  void flush() { negotiator_.flush(); }
  void finish_one() { negotiator_.ran(); }
  Negotiator& negotiator() { return negotiator_; }

  std::vector<Letter> outbox;
  std::set<std::string> open;
  std::map<std::string, int> times;
  std::map<std::string, int> failures;
  std::vector<std::string> log;
  bool has_joined = false;
  int joins = 0;    // of all
  int running = 0;  // batches

 private:
  const int rank_;
  std::map<std::string, std::vector<int64_t>> said_;
  Negotiator negotiator_;
};

CallDescription described(const std::string& words, uint64_t batch = 1, int64_t bytes = 8) {
  return {words, words, batch, bytes};
}

class Negotiation {
 public:
  Negotiation(Topology topology, uint64_t seed, NegotiatorOptions options = {})
      : random_(seed), topology_(std::move(topology)) {
    for (int rank = 0; rank < size(); ++rank)
      ranks_.push_back(std::make_unique<NegotiatorRank>(topology_, rank, options));
    messages.resize(ranks_.size());
  }

  int size() const { return static_cast<int>(topology_.host_of.size()); }
  NegotiatorRank& operator[](int rank) { return *ranks_[rank]; }
  size_t draw(size_t below) { return random_() % below; }
  bool chance(size_t one_in) { return draw(one_in) == 0; }

  // Something that can happen does: a letter arrives, a batch has run. False: nothing can.
  bool step() {
    for (int rank = 0; rank < size(); ++rank) collect(rank);
    const size_t events = running_.size() + links_.size();
    if (events == 0) return false;
    const size_t drawn = draw(events);
    int rank = 0;
    if (drawn < running_.size()) {
      rank = *std::next(running_.begin(), static_cast<ptrdiff_t>(drawn));
      ranks_[rank]->finish_one();
      running_.erase(running_.find(rank));
    } else {
      const auto link = std::next(links_.begin(), static_cast<ptrdiff_t>(drawn - running_.size()));
      const auto [from, to] = link->first;
      const std::vector<std::byte> bytes = std::move(link->second.front());
      link->second.pop_front();
      if (link->second.empty()) links_.erase(link);
      ++messages[from];
      ++messages[to];
      rank = to;
      ranks_[to]->receive(from, bytes);
    }
    ranks_[rank]->flush();
    return true;
  }
  void settle() {
    for (auto& rank : ranks_) rank->flush();
    while (step()) {
    }
  }
  void expect_same_course() {
    for (auto& rank : ranks_) {
      EXPECT_EQ(rank->log, ranks_[0]->log);
      EXPECT_TRUE(rank->open.empty());
      EXPECT_EQ(rank->negotiator().open(), 0u);
    }
  }

  std::vector<int> messages;  // sent and received by each rank

 private:
  // What the rank has sent and begun since.
  void collect(int rank) {
    for (auto& [to, bytes] : std::exchange(ranks_[rank]->outbox, {}))
      links_[{rank, to}].push_back(std::move(bytes));
    for (; ranks_[rank]->running > 0; --ranks_[rank]->running) running_.insert(rank);
  }

  std::mt19937_64 random_;
  const Topology topology_;
  std::vector<std::unique_ptr<NegotiatorRank>> ranks_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> links_;
  std::multiset<int> running_;  // the ranks of batches
};

// What each rank does, twice: it calls the names in rounds, in an order of its own, and joins after
// as many rounds as it has, be what it has called still open or not.
class Script {
 public:
  static constexpr int kPhases = 2;

  Script(Negotiation& ranks, int names, int most_rounds, bool conflicts)
      : ranks_(ranks), conflicts_(conflicts), lives_(ranks.size()) {
    for (int rank = 0; rank < ranks.size(); ++rank)
      for (auto& calls : lives_[rank].left) {
        const int rounds = 1 + static_cast<int>(ranks.draw(most_rounds));
        for (int round = 0; round < rounds; ++round)
          for (int name = 0; name < names; ++name) calls.push_back({name, round});
        lives_[rank].rounds.push_back(rounds);
      }
  }

  bool is_finished() {
    for (int rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].joins < kPhases) return false;
    return true;
  }
  // The rank makes a call that it may make, or joins, or does nothing.
  void act(int rank) {
    NegotiatorRank& one = ranks_[rank];
    if (one.has_joined || one.joins == kPhases) return;
    auto& left = lives_[rank].left[one.joins];
    if (left.empty()) return one.join();
    const size_t at = ranks_.draw(left.size());
    const auto [name, round] = left[at];
    const bool is_first = std::ranges::none_of(
        left, [name, round](auto o) { return o.name == name && o.round < round; });
    if (!is_first || one.open.contains(text(name))) return;
    left.erase(left.begin() + static_cast<ptrdiff_t>(at));
    make(one, rank, name, round);
  }
  // In both phases together: how often a name is called, and how often of these ranks disagree.
  int rounds() const {
    int out = 0;
    for (int phase = 0; phase < kPhases; ++phase) out += most_rounds(phase);
    return out;
  }
  int conflicts(int name) {
    int out = 0;
    for (int phase = 0; phase < kPhases; ++phase)
      for (int round = 0; round < most_rounds(phase); ++round) {
        int wrong = 0, right = 0;
        for (int rank = 0; rank < ranks_.size(); ++rank)
          if (lives_[rank].rounds[phase] > round) ++(is_wrong(rank, name, round) ? wrong : right);
        out += wrong > 0 && right > 0 ? 1 : 0;
      }
    return out;
  }
  static std::string text(int name) { return "call " + std::to_string(name); }

 private:
  struct Call {
    int name, round;
  };
  struct Life {
    std::vector<Call> left[kPhases];
    std::vector<int> rounds;
  };
  int most_rounds(int phase) const {
    int out = 0;
    for (const Life& life : lives_) out = std::max(out, life.rounds[phase]);
    return out;
  }
  bool is_wrong(int rank, int name, int round) const {
    return conflicts_ && (name + round) % 5 == 0 && rank % 3 == (name + round) / 5 % 3;
  }
  void make(NegotiatorRank& one, int rank, int name, int round) {
    // Some change from round to round, on all ranks alike.
    const std::string words =
        (is_wrong(rank, name, round) ? "other " : "sum ") + std::to_string(name % 4 ? 0 : round);
    std::optional<std::vector<int64_t>> extra;
    if (name % 3 == 0) extra.emplace({int64_t{rank} * 100 + round / 2});
    one.call(text(name), described(words, static_cast<uint64_t>(name % 3), 1 + name),
             std::move(extra));
  }

  Negotiation& ranks_;
  const bool conflicts_;
  std::vector<Life> lives_;
};

void run_script(uint64_t seed, bool conflicts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 drawn(seed);
  const int size = 1 + static_cast<int>(drawn() % 9);
  NegotiatorOptions options;
  options.cache_capacity = std::vector<size_t>{1, 2, 5, 1024}[drawn() % 4];
  options.fusion_bytes = static_cast<int64_t>(drawn() % 20);
  options.batches_in_flight = 1 + static_cast<int>(drawn() % 3);
  Negotiation ranks(test::runs_of_ranks(size, 1 + static_cast<int>(drawn() % 4)), seed, options);
  const int names = 1 + static_cast<int>(drawn() % 8);
  Script script(ranks, names, 6, conflicts);
  for (int rounds = 0; !script.is_finished(); ++rounds) {
    ASSERT_LT(rounds, 100000) << "nothing happens any more";
    for (int rank = 0; rank < size; ++rank) {
      if (ranks.chance(2)) script.act(rank);
      if (ranks.chance(2)) ranks[rank].flush();
    }
    ranks.step();
  }
  ranks.settle();
  ranks.expect_same_course();
  for (int name = 0; name < names; ++name) {
    const int failures = script.conflicts(name);
    EXPECT_EQ(ranks[0].failures[Script::text(name)], failures);
    EXPECT_EQ(ranks[0].times[Script::text(name)], script.rounds() - failures);
  }
}

TEST(Negotiator, AllRunTheSameInTheSameOrder) {
  for (uint64_t seed = 0; seed < 300; ++seed) run_script(seed, false);
}

TEST(Negotiator, ACallThatRanksDisagreeOnFailsOnAllAndTheRestGoesOn) {
  for (uint64_t seed = 1000; seed < 1300; ++seed) run_script(seed, true);
}

TEST(Negotiator, ARankAloneNeedsNobody) {
  Negotiation ranks(Topology::one_host(1), 0);
  ranks[0].call("a", described("sum"));
  ranks[0].flush();
  EXPECT_EQ(ranks[0].log, std::vector<std::string>{"run a=sum"});
}

TEST(Negotiator, NamesBothSidesOfADisagreement) {
  Negotiation ranks(Topology::one_host(3), 0);
  for (int rank = 0; rank < 3; ++rank) ranks[rank].call("a", described(rank == 2 ? "max" : "sum"));
  ranks.settle();
  ranks.expect_same_course();
  const std::string& said = ranks[0].log.at(0);
  EXPECT_TRUE(said.ends_with("called sum, rank 2 called max") ||
              said.starts_with("fail a: rank 2 called max, "))
      << said;
}

TEST(Negotiator, WaitsForTheLastRank) {
  Negotiation ranks(Topology::one_host(6), 0);
  for (int rank = 0; rank < 5; ++rank) ranks[rank].call("a", described("sum"));
  ranks.settle();
  EXPECT_TRUE(ranks[0].log.empty());
  ranks[5].call("a", described("sum"));
  ranks.settle();
  ranks.expect_same_course();
  EXPECT_EQ(ranks[0].log.size(), 1u);
}

TEST(Negotiator, WhatBecomesReadyMeanwhileGoesTogether) {
  NegotiatorOptions options;
  options.batches_in_flight = 1;
  options.fusion_bytes = 30;
  Negotiation ranks(Topology::one_host(1), 0, options);
  NegotiatorRank& one = ranks[0];
  for (const char* name : {"a", "b", "c", "d", "e", "other"}) {
    one.call(name, described("sum", std::string(name) == "other" ? 2 : 1, 10));
    one.flush();
  }
  one.call("alone", described("sum", 0, 10));
  one.call("long", described("sum", 1, 100));
  one.flush();
  for (; one.running > 0; --one.running) {
    one.finish_one();
    one.flush();
  }
  EXPECT_EQ(one.log, (std::vector<std::string>{"run a=sum", "run b=sum c=sum d=sum", "run e=sum",
                                               "run other=sum", "run alone=sum", "run long=sum"}));
}

// Each rank makes them in an order of its own, some at a time, as a lane finds them.
TEST(Negotiator, ManyCallsAtOnceNeedFewMessages) {
  constexpr int kCalls = 500, kAtATime = 25;
  Negotiation ranks(Topology::one_host(64), 1);
  for (const bool is_cached : {false, true}) {
    std::ranges::fill(ranks.messages, 0);
    for (int call = 0; call < kCalls; ++call)
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const int mine = (call * 7 + rank * 13) % kCalls;
        ranks[rank].call("call " + std::to_string(mine), described("sum"));
        if ((call + 1) % kAtATime != 0) continue;
        ranks[rank].flush();
        ranks.step();
      }
    ranks.settle();
    ranks.expect_same_course();
    const int most = std::ranges::max(ranks.messages);
    RecordProperty(is_cached ? "cached" : "first", most);
    EXPECT_LE(most, 600);
  }
}

TEST(Negotiator, WhatNeedsAllRanksFailsWhereOneHasJoined) {
  Negotiation ranks(Topology::one_host(3), 0);
  CallDescription description = described("an allgather");
  description.needs_all = true;
  for (const bool call_is_first : {false, true}) {
    if (!call_is_first) ranks[2].join();
    for (int rank = 0; rank < 2; ++rank) {
      ranks[rank].call("a", description);
      ranks[rank].call("b", described("sum"));
    }
    ranks.settle();
    if (call_is_first) ranks[2].join();
    ranks.settle();
    for (int rank = 0; rank < 2; ++rank) ranks[rank].join();
    ranks.settle();
  }
  ranks.expect_same_course();
  EXPECT_EQ(ranks[0].times["b"], 2);
  EXPECT_EQ(ranks[0].failures["a"], 2);
  EXPECT_EQ(std::ranges::count(ranks[0].log,
                               "fail a: rank 2 has joined, and an allgather needs all ranks"),
            2);
}

// What a rank says for itself is said once, and may be in the others' tables only.
TEST(Negotiator, ExtrasOutliveThatANameIsForgottenMeanwhile) {
  NegotiatorOptions options;
  options.cache_capacity = 1;
  Negotiation ranks(Topology::one_host(2), 0, options);
  const auto call = [&ranks](int rank, const std::string& name) {
    ranks[rank].call(name, described("gather"), std::vector<int64_t>{10 + rank});
    ranks[rank].flush();
  };
  for (const int rank : {0, 1}) call(rank, "a");
  ranks.settle();
  call(0, "a");  // known, so it says no more
  for (const int rank : {0, 1}) call(rank, "b");
  ranks.settle();
  call(1, "a");
  ranks.settle();
  ranks.expect_same_course();
  EXPECT_EQ(ranks[1].log.back(), "run a=gather 0:10 1:11");
}

// A rank that has joined has nothing to say, but for what may be forgotten.
TEST(Negotiator, ARankThatHasJoinedLetsOthersForget) {
  NegotiatorOptions options;
  options.cache_capacity = 1;
  Negotiation ranks(Topology::one_host(3), 0, options);
  ranks[2].join();
  for (int call = 0; call < 1000; ++call) {
    for (int rank = 0; rank < 2; ++rank)
      ranks[rank].call("call " + std::to_string(call), described("sum"));
    ranks.settle();
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_LE(ranks[rank].negotiator().remembered(), 200u);
}

TEST(Negotiator, LettersThatMakeNoSenseAreErrors) {
  Negotiation ranks(Topology::one_host(2), 0);
  UpLetter letter;
  letter.ready = {{{99, {}, {}}, 1, {}, {}, {}}};
  EXPECT_TRUE(ranks[0].negotiator().receive(1, letter.encode()));
  EXPECT_TRUE(ranks[0].negotiator().receive(7, UpLetter().encode()));
  EXPECT_TRUE(ranks[0].negotiator().receive(1, ConstBytes()));
  for (const int rank : {-1, 2}) {
    letter.ready = {{{0, "a", described("sum")}, rank, {}, {}, {}}};
    EXPECT_TRUE(ranks[0].negotiator().receive(1, letter.encode()));
    letter.ready = {{{0, "a", described("sum")}, 1, {{rank, {}}}, {}, {}}};
    EXPECT_TRUE(ranks[0].negotiator().receive(1, letter.encode()));
  }
  letter.ready = {{{0, "a", described("sum", 1, -1)}, 1, {}, {}, {}}};
  EXPECT_TRUE(ranks[0].negotiator().receive(1, letter.encode()));
  const ReadyCall good{{0, "a", described("sum")}, 1, {}, {}, {}};
  letter.ready = {good, good};
  EXPECT_TRUE(ranks[0].negotiator().receive(1, letter.encode()));
  CallDecision decision;
  decision.position = 2;
  EXPECT_TRUE(ranks[1].negotiator().receive(0, decision.encode(0)));
  EXPECT_TRUE(ranks[1].negotiator().receive(0, CallDecision().encode(1)));
  decision.position = 1;
  decision.batches = {{{{5, {}, {}}, false, {}}}};
  EXPECT_TRUE(ranks[1].negotiator().receive(0, decision.encode(0)));
}

}  // namespace
}  // namespace ringdist
