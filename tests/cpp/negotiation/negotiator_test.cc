// Ranks negotiate over a network that delivers in any order but that of one sender to one receiver.
// Each run is drawn from a seed.
#include "negotiation/negotiator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
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
      : rank_(rank), negotiator_(*this, SpanningTree::of(topology, rank), rank, options) {}

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
      open.erase(entry->name);
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
  }

  void call(const std::string& name, CallDescription description,
            std::optional<std::vector<int64_t>> extra = {}) {
    open.insert(name);
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
  void finish_one() {
    --running;
    negotiator_.ran();
  }
  Negotiator& negotiator() { return negotiator_; }

  std::deque<Letter> outbox;
  std::set<std::string> open;
  std::map<std::string, int> times;
  std::map<std::string, int> failures;
  std::vector<std::string> log;
  bool has_joined = false;
  int running = 0;  // batches

 private:
  const int rank_;
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
    struct Event {
      int from, to;  // to itself: a batch has run
    };
    std::vector<Event> events;
    for (int from = 0; from < size(); ++from) {
      if (ranks_[from]->running > 0) events.push_back({from, from});
      for (int to = 0; to < size(); ++to)
        if (next_letter(from, to) != ranks_[from]->outbox.end()) events.push_back({from, to});
    }
    if (events.empty()) return false;
    const auto [from, to] = events[draw(events.size())];
    if (from == to) {
      ranks_[from]->finish_one();
    } else {
      const auto letter = next_letter(from, to);
      const std::vector<std::byte> bytes = std::move(letter->bytes);
      ranks_[from]->outbox.erase(letter);
      ++messages[from];
      ++messages[to];
      ranks_[to]->receive(from, bytes);
    }
    ranks_[to]->flush();
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
  std::deque<NegotiatorRank::Letter>::iterator next_letter(int from, int to) {
    return std::ranges::find(ranks_[from]->outbox, to, &NegotiatorRank::Letter::to);
  }

  std::mt19937_64 random_;
  const Topology topology_;
  std::vector<std::unique_ptr<NegotiatorRank>> ranks_;
};

// What each rank does: it calls the names in rounds, in an order of its own, and joins after as
// many rounds as it has.
class Script {
 public:
  Script(Negotiation& ranks, int names, int most_rounds, bool conflicts)
      : ranks_(ranks), conflicts_(conflicts), left_(ranks.size()), rounds_(ranks.size()) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      rounds_[rank] = 1 + static_cast<int>(ranks.draw(most_rounds));
      for (int round = 0; round < rounds_[rank]; ++round)
        for (int name = 0; name < names; ++name) left_[rank].push_back({name, round});
    }
  }

  // The rank makes a call that it may make, or joins. False: it has joined.
  bool act(int rank) {
    NegotiatorRank& one = ranks_[rank];
    if (one.has_joined || done_.contains(rank)) return false;
    if (left_[rank].empty()) {
      if (!one.open.empty()) return true;  // join() comes after what it has called
      done_.insert(rank);
      one.join();
      return true;
    }
    // The first of a name, and no later one than the next round's.
    for (size_t tries = 0; tries < 5; ++tries) {
      const size_t at = ranks_.draw(left_[rank].size());
      const auto [name, round] = left_[rank][at];
      const bool is_first = std::ranges::none_of(
          left_[rank], [name, round](auto o) { return o.name == name && o.round < round; });
      if (!is_first || one.open.contains(text(name))) continue;
      left_[rank].erase(left_[rank].begin() + static_cast<ptrdiff_t>(at));
      make(one, rank, name, round);
      return true;
    }
    return true;
  }
  int most_rounds() const { return std::ranges::max(rounds_); }
  static std::string text(int name) { return "call " + std::to_string(name); }
  // In that round rank 0, which must have it, says something else.
  bool is_conflict(int name, int round) const { return conflicts_ && (name + round) % 5 == 0; }
  int rounds(int rank) const { return rounds_[rank]; }

 private:
  struct Call {
    int name, round;
  };
  void make(NegotiatorRank& one, int rank, int name, int round) {
    const bool wrong = rank == 0 && is_conflict(name, round);
    // Some change from round to round, on all ranks alike.
    const std::string words = (wrong ? "other " : "sum ") + std::to_string(name % 4 ? 0 : round);
    std::optional<std::vector<int64_t>> extra;
    if (name % 3 == 0) extra = {rank * 100 + round / 2};
    one.call(text(name), described(words, name % 3, 1 + name), std::move(extra));
  }

  Negotiation& ranks_;
  const bool conflicts_;
  std::vector<std::vector<Call>> left_;
  std::vector<int> rounds_;
  std::set<int> done_;
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
  Script script(ranks, names, 4, conflicts);
  size_t idle = 0;
  for (bool some_act = true; some_act || ranks.step();) {
    some_act = false;
    for (int rank = 0; rank < size; ++rank) {
      if (ranks.chance(2)) continue;
      some_act |= script.act(rank);
      if (ranks.chance(2)) ranks[rank].flush();
    }
    idle = ranks.step() ? 0 : idle + 1;
    ASSERT_LT(idle, 10000u) << "nothing happens any more";
  }
  ranks.settle();
  ranks.expect_same_course();
  ASSERT_FALSE(ranks[0].log.empty());
  EXPECT_TRUE(ranks[0].log.back().starts_with("joined")) << ranks[0].log.back();
  for (int name = 0; name < names; ++name) {
    int failures = 0;
    for (int round = 0; round < script.rounds(0); ++round) {
      // Somebody must have said the usual thing.
      bool others = false;
      for (int rank = 1; rank < size; ++rank) others |= script.rounds(rank) > round;
      failures += others && script.is_conflict(name, round) ? 1 : 0;
    }
    EXPECT_EQ(ranks[0].failures[Script::text(name)], failures);
    EXPECT_EQ(ranks[0].times[Script::text(name)], script.most_rounds() - failures);
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
  for (int i = 0; i < 8; ++i) {
    one.finish_one();
    one.flush();
  }
  EXPECT_EQ(one.log, (std::vector<std::string>{"run a=sum", "run b=sum c=sum d=sum", "run e=sum",
                                               "run other=sum", "run alone=sum", "run long=sum"}));
}

// Horovod's readiness is one bit of an allreduce per cycle; this is one letter up and one down, of
// as many calls as are ready.
TEST(Negotiator, ManyCallsAtOnceNeedFewMessages) {
  constexpr int kCalls = 500;
  Negotiation ranks(Topology::one_host(64), 1);
  for (const bool cached : {false, true}) {
    std::ranges::fill(ranks.messages, 0);
    for (int call = 0; call < kCalls; ++call)
      for (int rank = 0; rank < ranks.size(); ++rank) {
        // Each in an order of its own, and nothing waits for the rest.
        const int mine = (call * 7 + rank * 13) % kCalls;
        ranks[rank].call("call " + std::to_string(mine), described("sum"));
        ranks[rank].flush();
        ranks.step();
      }
    ranks.settle();
    ranks.expect_same_course();
    RecordProperty(cached ? "cached" : "first", std::ranges::max(ranks.messages));
    if (cached) EXPECT_LE(std::ranges::max(ranks.messages), 600);
  }
}

TEST(Negotiator, LettersThatMakeNoSenseAreErrors) {
  Negotiation ranks(Topology::one_host(2), 0);
  UpLetter letter;
  letter.ready = {{{99, {}, {}}, 1, {}, {}}};
  EXPECT_TRUE(ranks[0].negotiator().receive(1, letter.encode()));
  EXPECT_TRUE(ranks[0].negotiator().receive(7, UpLetter().encode()));
  EXPECT_TRUE(ranks[0].negotiator().receive(1, ConstBytes()));
  letter.ready = {{{0, "a", described("sum")}, 1, {}, {}}, {{0, "a", described("sum")}, 1, {}, {}}};
  EXPECT_TRUE(ranks[0].negotiator().receive(1, letter.encode()));
  CallDecision decision;
  decision.position = 2;
  EXPECT_TRUE(ranks[1].negotiator().receive(0, decision.encode(0)));
  decision.position = 1;
  decision.batches = {{{{5, {}, {}}, false, {}}}};
  EXPECT_TRUE(ranks[1].negotiator().receive(0, decision.encode(0)));
}

}  // namespace
}  // namespace ringdist
