// Simulated ranks that negotiate. The network delivers messages in an order drawn from a seed; it
// keeps the order from each sender to each receiver. Single-threaded.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "negotiation/order/negotiator.h"

namespace ringdist {

class NegotiatorRank final : public NegotiatorDelegate {
 public:
  struct ServiceMessage {
    int to;
    std::vector<std::byte> bytes;
  };

  NegotiatorRank(const Topology& topology, int rank, NegotiatorOptions options)
      : rank_(rank), negotiator_(*this, topology, rank, options) {}

  void send(int rank, std::vector<std::byte> message) override {
    outbox.push_back({rank, std::move(message)});
  }
  void run(const std::vector<ResponseCache::AgreedCall>& batch) override {
    std::string line = "run";
    for (const auto& [entry, last] : batch) {
      line += " " + entry->name + "=" + entry->description.words;
      for (const auto& [rank, values] : entry->extras)
        for (const int64_t value : values)
          line += " " + std::to_string(rank) + ":" + std::to_string(value);
      if (open.erase(entry->name) > 0 && said_.contains(entry->name)) {
        EXPECT_EQ(entry->extras.at(rank_), said_[entry->name]);
      }
      ++times[entry->name];
      lasts[entry->name] = last;
    }
    log.push_back(line);
    ++running;
  }
  void fail(const std::string& name, const std::string& why) override {
    log.push_back("fail " + name + ": " + why);
    open.erase(name);
    ++failures[name];
  }
  std::string describe_difference(const CallDescription&, const CallDescription&) const override {
    return "";
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
  void receive(int from, const std::vector<std::byte>& message) {
    const Error error = negotiator_.receive(from, message);
    EXPECT_FALSE(error) << "rank " << rank_ << ": " << error.what();
  }
  void flush() { negotiator_.flush(); }
  void finish_one() { negotiator_.ran(); }
  Negotiator& negotiator() { return negotiator_; }

  std::vector<ServiceMessage> outbox;
  std::set<std::string> open;
  std::map<std::string, int> times;
  std::map<std::string, int> failures;
  std::map<std::string, int> lasts;  // by name: the rank that was ready last
  std::vector<std::string> log;
  bool has_joined = false;
  int joins = 0;    // number of times that all ranks had joined
  int running = 0;  // number of batches that have begun

 private:
  const int rank_;
  std::map<std::string, std::vector<int64_t>> said_;
  Negotiator negotiator_;
};

inline CallDescription described(const std::string& words, uint64_t batch = 1, int64_t bytes = 8) {
  return {words, words, batch, bytes};
}

class NegotiatorWorld {
 public:
  NegotiatorWorld(Topology topology, uint64_t seed, NegotiatorOptions options = {})
      : random_(seed), topology_(std::move(topology)) {
    for (int rank = 0; rank < size(); ++rank)
      ranks_.push_back(std::make_unique<NegotiatorRank>(topology_, rank, options));
    messages.resize(ranks_.size());
  }

  int size() const { return static_cast<int>(topology_.host_of.size()); }
  NegotiatorRank& operator[](int rank) { return *ranks_[rank]; }
  size_t draw(size_t below) { return random_() % below; }
  bool chance(size_t one_in) { return draw(one_in) == 0; }

  // Performs one random event that is possible: delivers a message or ends a batch. Returns false
  // if no event is possible.
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

  std::vector<int> messages;  // number of messages that each rank has sent and received

 private:
  // Takes over the messages and batches that the rank has produced since the last call.
  void collect(int rank) {
    for (auto& [to, bytes] : std::exchange(ranks_[rank]->outbox, {}))
      links_[{rank, to}].push_back(std::move(bytes));
    for (; ranks_[rank]->running > 0; --ranks_[rank]->running) running_.insert(rank);
  }

  std::mt19937_64 random_;
  const Topology topology_;
  std::vector<std::unique_ptr<NegotiatorRank>> ranks_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> links_;
  std::multiset<int> running_;  // ranks of the batches that run
};

}  // namespace ringdist
