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
  explicit ReportedWork(Completion completion, Args&&... args)
      : Work(std::forward<Args>(args)...), completion_(std::move(completion)) {}

#if RINGDIST_TORCH_HAS_COMPLETION_HOOKS
  uint64_t getCompletionKey() const override { return completion_.key(); }
#endif

 protected:
  const Completion& completion() const { return completion_; }

 private:
  const Completion completion_;
};

}  // namespace ringdist
