// A Work that the test completes.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "torch/work/base_work.h"

namespace ringdist {

inline CompletionPtr completion() {
  return std::make_shared<Completion>(std::make_shared<Hooks>(), 1);
}

inline std::exception_ptr failure_of(const std::string& what) {
  return std::make_exception_ptr(std::runtime_error(what));
}

template <typename Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

// Completes when the test calls end(). A wait before that times out.
class TestWork final : public BaseWork {
 public:
  explicit TestWork(std::vector<at::Tensor> outputs = {})
      : BaseWork(completion(), /*rank=*/0, c10d::OpType::ALLREDUCE), outputs_(std::move(outputs)) {}

  void end(const std::exception_ptr& error = nullptr) {
    finish(error);
    if (future_) mark(*future_, error, outputs_);
  }

  std::vector<at::Tensor> result() override { return outputs_; }

  std::vector<std::optional<Milliseconds>> waits;
  int told = 0;
  int futures = 0;
  bool refuses_futures = false;

 private:
  void await(std::optional<Milliseconds> limit) override {
    waits.push_back(limit);
    if (!isCompleted()) throw std::runtime_error("expired");
  }
  void run_failure_hooks() override { ++told; }
  void check_future() override {
    if (refuses_futures) throw std::runtime_error("never marked");
  }
  FuturePtr make_future() override {
    ++futures;
    future_ = make_future_of_tensors();
    if (isCompleted()) mark(*future_, exception(), outputs_);
    return future_;
  }

  const std::vector<at::Tensor> outputs_;
  FuturePtr future_;
};

using TestWorkPtr = c10::intrusive_ptr<TestWork>;

}  // namespace ringdist
