// Fake of the group that a DeviceRunner (engine/device/device_runner.h) belongs to. It keeps host
// ops for the test to complete, and it makes up the other ranks' contributions to an exchange.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device_runner.h"

namespace ringdist {

class FakeRunnerDelegate final : public RunnerDelegate {
 public:
  using Exchanged = std::vector<std::vector<std::byte>>;
  struct Started {
    HostOp op;
    std::function<void(Error)> ended;
  };

  FakeRunnerDelegate(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<Exchanged> exchange(const std::vector<int>& ranks, ConstBytes mine, TimePoint) override {
    ++exchanges;
    if (fails) return fails;
    Exchanged out(ranks.size(), {mine.begin(), mine.end()});
    if (others) others(out);
    return out;
  }
  Result<std::shared_ptr<GroupSharedMemory>> share(size_t, TimePoint) override { return memory; }
  void set_affinity_near(const std::string& address) override { near.push_back(address); }
  Error run_on_host(HostOp op, std::function<void(Error)> ended) override {
    if (fails) return fails;
    started.push_back({std::move(op), std::move(ended)});
    return {};
  }

  int exchanges = 0;
  Error fails;                             // error that every call returns, if set
  std::function<void(Exchanged&)> others;  // edits the result of an exchange, which is a copy of
                                           // this rank's contribution per rank
  std::vector<Started> started;
  std::shared_ptr<GroupSharedMemory> memory;
  std::vector<std::string> near;  // arguments of the calls of set_affinity_near()

 private:
  const int rank_;
  const int size_;
};

}  // namespace ringdist
