#include "torch/named/named_work.h"

#include <utility>

#include "torch/errors.h"
#include "torch/named/scale.h"
#include "torch/work/interrupts.h"

namespace ringdist {

NamedWork::NamedWork(std::shared_ptr<Negotiation> negotiation, std::string name,
                     std::shared_ptr<Tensors> outputs, After after)
    : negotiation_(std::move(negotiation)),
      name_(std::move(name)),
      outputs_(std::move(outputs)),
      after_(std::move(after)) {}

bool NamedWork::poll() {
  if (!end_->finished()) return false;
  settle();
  return true;
}

const Tensors& NamedWork::wait() {
  if (!end_->finished())
    (void)wait_in_slices(std::nullopt, [this](std::optional<Milliseconds> limit) {
      return negotiation_->wait(*end_, limit);
    });
  settle();
  if (error_) std::rethrow_exception(error_);
  return *outputs_;
}

void NamedWork::settle() {
  std::call_once(settled_, [this] {
    try {
      throw_if(end_->error());
      after_.staging.finish();
      for (const at::Tensor& output : *outputs_) scale(output, after_.factor);
    } catch (...) {
      error_ = std::current_exception();
    }
    negotiation_->release(name_);
  });
}

}  // namespace ringdist
