#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "torch/work/base_work.h"

namespace ringdist {

// The Work of one operation of one group.
class GroupWork : public BaseWork {
 public:
  // Ends the whole group, on all ranks.
  void abort() final;
  uint64_t getSequencenumber() const final { return number_; }

 protected:
  GroupWork(std::shared_ptr<Communicator> group, uint64_t number, CompletionPtr completion,
            c10d::OpType type, const char* title,
            const std::optional<std::vector<at::Tensor>>& inputs);

  // For messages: which operation this is.
  virtual std::string describe() const = 0;
  virtual bool ended() = 0;
  // Waits until it has ended; false: `limit` has passed.
  virtual bool wait_until_ended(std::optional<Milliseconds> limit) = 0;

  // Hears of Ctrl-C.
  void await(std::optional<Milliseconds> limit) override;
  void run_failure_hooks() final { group_->run_failure_hooks(); }
  void check_future() final;

  Communicator& group() const { return *group_; }

 private:
  // In a process that was forked from the one that runs the operation, nothing ever ends it.
  void check_not_forked() const;

  const std::shared_ptr<Communicator> group_;
  const uint64_t number_;
};

}  // namespace ringdist
