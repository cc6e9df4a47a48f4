// Ranks that make named calls. They are threads with their own Contexts over a network with
// delays.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "negotiation/call_content.h"
#include "negotiation/negotiation.h"
#include "support/ranks.h"

namespace ringdist {

inline CallDescription allreduce_of(int64_t count, ReduceOp op = ReduceOp::kSum) {
  CallContent out;
  out.reduce_op = op;
  out.tensors = {{DType::kFloat32, {count}}};
  return out.describe();
}

inline Result<std::vector<OpRequest>> only(OpRequest request) {
  std::vector<OpRequest> out;
  out.push_back(std::move(request));
  return out;
}

inline NamedCall sum_of(const std::string& name, std::vector<float>& data,
                        ReduceOp op = ReduceOp::kSum) {
  return {name,
          "allreduce",
          allreduce_of(static_cast<int64_t>(data.size()), op),
          {},
          [&data, op](const ExtrasByRank&) {
            return only(allreduce_request(data, DType::kFloat32, op));
          }};
}

class NamedRanks {
 public:
  explicit NamedRanks(RanksOptions ranks, NegotiatorOptions negotiator = {})
      : ranks_(std::move(ranks)) {
    NegotiationOptions options;
    options.order = negotiator;
    auto groups = ranks_.another("named");
    for (auto& group : groups) {
      auto made = Negotiation::create(group, options);
      EXPECT_TRUE(made.ok()) << made.error().what();
      all_.push_back(std::move(made.value()));
    }
  }
  Negotiation& operator[](int rank) { return *all_[rank]; }
  Ranks& ranks() { return ranks_; }
  void run(const std::function<void(int)>& body) { ranks_.run(body); }
  void close(int rank) { all_[rank]->close(); }

  // Makes the call, waits for it, and frees its name.
  Error call(int rank, NamedCall one) {
    const std::string name = one.name;
    auto end = all_[rank]->call(std::move(one), /*will_wait=*/true);
    if (!end.ok()) return end.error();
    return wait(rank, name, *end.value());
  }
  Error wait(int rank, const std::string& name, const Op& end) {
    EXPECT_TRUE(all_[rank]->wait(end, std::nullopt));
    all_[rank]->release(name, end);
    return end.error();
  }
  int join(int rank) {
    auto join = all_[rank]->join();
    EXPECT_TRUE(join.ok()) << join.error().what();
    EXPECT_TRUE(all_[rank]->wait(*join.value().end, std::nullopt));
    EXPECT_FALSE(join.value().end->error()) << join.value().end->error().what();
    return *join.value().last;
  }

 private:
  Ranks ranks_;
  std::vector<std::shared_ptr<Negotiation>> all_;
};

inline RanksOptions delayed(int size, uint64_t seed, Milliseconds most = Milliseconds(1)) {
  RanksOptions out = of_size(size);
  out.network = {seed, most};
  return out;
}

inline std::string name_of(int i) { return "t" + std::to_string(i); }

}  // namespace ringdist
