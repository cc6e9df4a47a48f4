#include <deque>
#include <utility>
#include <vector>

#include "support/checked/model.h"

namespace ringdist::checked {
namespace {

class TsoModel final : public Model {
 public:
  explicit TsoModel(int threads) : queues_(static_cast<size_t>(threads)) {}

  std::unique_ptr<Model> copy() const override { return std::make_unique<TsoModel>(*this); }

  size_t ways(int thread, const Action& action, size_t) const override {
    const bool waits = action.kind == Kind::kStore && action.order == std::memory_order_seq_cst;
    return waits && may_drain(thread) ? 0 : 1;
  }

  uint64_t perform(int thread, const Action& action, size_t place, size_t) override {
    if (memory_.size() <= place) memory_.resize(place + 1);
    auto& queue = queues_[static_cast<size_t>(thread)];
    if (action.kind == Kind::kStore || action.kind == Kind::kWrite) {
      queue.emplace_back(place, action.value);
      if (action.order == std::memory_order_seq_cst) drain(thread);
      return 0;
    }
    for (auto it = queue.rbegin(); it != queue.rend(); ++it)
      if (it->first == place) return it->second;
    return memory_[place];
  }

  bool may_drain(int thread) const override {
    return !queues_[static_cast<size_t>(thread)].empty();
  }

  void drain(int thread) override {
    auto& queue = queues_[static_cast<size_t>(thread)];
    memory_[queue.front().first] = queue.front().second;
    queue.pop_front();
  }

  void append_key(std::string& key) const override {
    append(key, memory_.size());
    for (const uint64_t value : memory_) append(key, value);
    for (const auto& queue : queues_) {
      append(key, queue.size());
      for (const auto& [place, value] : queue) {
        append(key, place);
        append(key, value);
      }
    }
  }

 private:
  std::vector<uint64_t> memory_;
  std::vector<std::deque<std::pair<size_t, uint64_t>>> queues_;
};

}  // namespace

std::unique_ptr<Model> tso_model(int threads) { return std::make_unique<TsoModel>(threads); }

}  // namespace ringdist::checked
