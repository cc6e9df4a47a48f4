// The group of a DeviceRunner (engine/device/device_runner.h), by itself: host ops are kept for the
// test to end, and what others give in an exchange is made up.
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
  Error fails;                             // all calls
  std::function<void(Exchanged&)> others;  // alters what all ranks gave, which is what this one did
  std::vector<Started> started;
  std::shared_ptr<GroupSharedMemory> memory;
  std::vector<std::string> near;  // what set_affinity_near() was called with

 private:
  const int rank_;
  const int size_;
};

}  // namespace ringdist
