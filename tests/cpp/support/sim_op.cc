#include "support/sim_op.h"

#include <algorithm>
#include <cstring>

namespace ringdist {
namespace {

// Returns small integers, so that sums are exact in any order.
float simulated_value(int64_t rank, int64_t element) {
  return static_cast<float>((rank * 7 + element * 3) % 31);
}

Buffer over(std::vector<float>& data) {
  Buffer out(sizeof(float));
  out.append(data.data(), static_cast<int64_t>(data.size()));
  return out;
}

bool has_many_parts_of_input(Collective kind) {
  return kind == Collective::kReduceScatter || kind == Collective::kAlltoall ||
         kind == Collective::kScatter;
}

bool has_many_parts_of_output(Collective kind) {
  return kind == Collective::kAllgather || kind == Collective::kAlltoall ||
         kind == Collective::kGather;
}

}  // namespace

SimOp::SimOp(Collective kind, int size, int64_t count) : kind_(kind), size_(size), count_(count) {
  for (int rank = 0; rank < size; ++rank) {
    Data& data = data_.emplace_back();
    const auto length = [&](bool many) { return static_cast<size_t>(many ? parts() : count_); };
    if (!traits_of(kind).in_place) data.input.resize(length(has_many_parts_of_input(kind)));
    data.output.resize(length(has_many_parts_of_output(kind)), -1);
    auto& brings = traits_of(kind).in_place ? data.output : data.input;
    for (size_t e = 0; e < brings.size(); ++e)
      brings[e] = simulated_value(rank, static_cast<int64_t>(e));
  }
}

OpRequest SimOp::request(int rank) {
  Data& data = data_[static_cast<size_t>(rank)];
  OpRequest out;
  out.kind = kind_;
  out.reduce_op = reduces(kind_) ? ReduceOp::kSum : ReduceOp::kNone;
  const bool rooted = traits_of(kind_).has_root;
  out.root = rooted ? size_ - 1 : 0;
  out.count = count_;
  if (kind_ == Collective::kBarrier) return out;
  out.input = over(data.input);
  out.output = over(data.output);
  return out;
}

bool SimOp::outputs_equal() const {
  return std::ranges::all_of(data_, [this](const Data& data) {
    return std::memcmp(data.output.data(), data_[0].output.data(),
                       data.output.size() * sizeof(float)) == 0;
  });
}

std::string SimOp::problem() const {
  const auto sum = [this](int64_t element) {
    float out = 0;
    for (int rank = 0; rank < size_; ++rank) out += simulated_value(rank, element);
    return out;
  };
  std::vector<float> sums(static_cast<size_t>(kind_ == Collective::kReduceScatter
                                                  ? parts()
                                                  : (kind_ == Collective::kBarrier ? 0 : count_)));
  for (size_t e = 0; e < sums.size(); ++e) sums[e] = sum(static_cast<int64_t>(e));
  const auto expected = [&](int rank, int64_t element) -> float {
    switch (kind_) {
      case Collective::kAllreduce:
        return sums[static_cast<size_t>(element)];
      case Collective::kReduce:
        return rank == size_ - 1 ? sums[static_cast<size_t>(element)]
                                 : simulated_value(rank, element);
      case Collective::kBroadcast:
        return simulated_value(size_ - 1, element);
      case Collective::kReduceScatter:
        return sums[static_cast<size_t>(rank * count_ + element)];
      case Collective::kScatter:
        return simulated_value(size_ - 1, rank * count_ + element);
      case Collective::kAllgather:
        return simulated_value(element / count_, element % count_);
      case Collective::kGather:
        return rank == size_ - 1 ? simulated_value(element / count_, element % count_) : -1;
      default:  // alltoall
        return simulated_value(element / count_, rank * count_ + element % count_);
    }
  };
  if (kind_ == Collective::kBarrier) return "";
  for (int rank = 0; rank < size_; ++rank) {
    const std::vector<float>& output = data_[static_cast<size_t>(rank)].output;
    for (size_t e = 0; e < output.size(); ++e)
      if (output[e] != expected(rank, static_cast<int64_t>(e)))
        return "rank " + std::to_string(rank) + ", element " + std::to_string(e) + ": " +
               std::to_string(output[e]) + " instead of " +
               std::to_string(expected(rank, static_cast<int64_t>(e)));
  }
  return "";
}

}  // namespace ringdist
