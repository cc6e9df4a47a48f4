// What one step of a hook, that is all buckets of a backward pass, changes in its parameters: what
// they owe and where approximations begin. All of it takes effect once all buckets were averaged;
// if one was not, or the pass was cut short, nothing does, so that the step can be repeated.
//
// Not thread-safe.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <vector>

#include "torch/ddp/parameter_table.h"

namespace ringdist {

class StepChanges {
 public:
  enum class Outcome { kOpen, kSucceeded, kFailed };

  // A step begins; what the last one left open is forgotten.
  void begin();
  // What the parameter will owe has been, or is being, written; `owed`: it may be other than zero.
  void add_residual(Parameter& parameter, bool owed) { residuals_.push_back({&parameter, owed}); }
  void add_right(Parameter& parameter) { rights_.push_back(&parameter); }
  void add_bucket(c10::intrusive_ptr<c10::ivalue::Future> bucket);
  // A bucket of the step that has begun could not even start.
  void fail() { failed_ = begun_; }
  // Any thread may set it: the last bucket has come.
  const std::shared_ptr<std::atomic<bool>>& complete() const { return complete_; }

  // Something waits for settle().
  bool pending() const { return failed_ || !buckets_.empty(); }
  // No bucket is to come any more, and returns when none is on its way.
  void end();
  // kOpen while a bucket is to come or on its way. Else what was added takes effect, or nothing.
  Outcome settle();

 private:
  struct Changed {
    Parameter* parameter;
    bool owed;
  };
  std::vector<Changed> residuals_;
  std::vector<Parameter*> rights_;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> buckets_;
  std::shared_ptr<std::atomic<bool>> complete_ = std::make_shared<std::atomic<bool>>();
  bool begun_ = false;
  bool failed_ = false;
};

}  // namespace ringdist
