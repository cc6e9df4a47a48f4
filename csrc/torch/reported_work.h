// A Work whose success is reported to the group's hooks.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "engine/hooks.h"
#include "torch/features.h"

namespace ringdist {

class ReportedWork : public c10d::Work {
 public:
  template <typename... Args>
  explicit ReportedWork(CompletionPtr completion, Args&&... args)
      : Work(std::forward<Args>(args)...), completion_(std::move(completion)) {}

#if RINGDIST_TORCH_HAS_COMPLETION_HOOKS
  uint64_t getCompletionKey() const override { return completion_->key(); }
#endif
  // In milliseconds; while it is open, until now.
  float getDuration() const override { return completion_->milliseconds(); }

 protected:
  void report_success() { completion_->arrive(); }

 private:
  const CompletionPtr completion_;
};

}  // namespace ringdist
