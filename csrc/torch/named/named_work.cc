#include "torch/named/named_work.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/trunc.h>
#include <c10/core/GradMode.h>

#include <set>
#include <utility>

#include "torch/base/devices.h"
#include "torch/base/errors.h"
#include "torch/work/interrupts.h"

namespace ringdist {

NamedWork::NamedWork(std::shared_ptr<Negotiation> negotiation, std::string name,
                     std::shared_ptr<Tensors> outputs, OnSuccess after)
    : negotiation_(std::move(negotiation)),
      name_(std::move(name)),
      outputs_(std::move(outputs)),
      after_(std::move(after)) {}

NamedWork::~NamedWork() {
  if (end_ && !finished_) release_name();
}

bool NamedWork::poll() {
  if (!end_->finished()) return false;
  finish();
  return true;
}

const Tensors& NamedWork::wait() {
  if (negotiation_->group().context().forked())
    throw_error(Error(ErrorKind::kAborted, "ringdist: '" + name_ +
                                               "': this process was forked from "
                                               "the one that has called it"));
  if (!end_->finished())
    (void)wait_in_slices(std::nullopt, [this](std::optional<Milliseconds> limit) {
      return negotiation_->wait(*end_, limit);
    });
  finish();
  if (error_) std::rethrow_exception(error_);
  if (in_place_) {
    const c10::Stream here = current_stream(*after_.device);
    in_place_->block(here);
    for (const at::Tensor& output : *outputs_)
      if (output.device() == here.device()) use_on(output, here);
  }
  return *outputs_;
}

void NamedWork::finish() {
  std::call_once(finished_once_, [this] {
    try {
      throw_if(end_->error());
      put_in_place();
    } catch (...) {
      error_ = std::current_exception();
    }
    release_name();
    finished_ = true;
  });
}

void NamedWork::put_in_place() {
  after_.staging.finish();
  std::set<const void*> scaled;  // a tensor may occur twice, but is scaled once
  for (const at::Tensor& output : *outputs_)
    if (after_.factor != 1 && scaled.insert(output.data_ptr()).second)
      write_result(output, scaled_by(output, after_.factor));
  if (!after_.device) return;
  const c10::Stream here = current_stream(*after_.device);
  after_.staging.for_each_back([&here](const at::Tensor& theirs, const at::Tensor& ours) {
    use_on(theirs, here);
    use_on(ours, here);
  });
  in_place_.emplace(here.device_type());
  in_place_->record(here);
}

namespace {

at::ScalarType computed_in(at::ScalarType dtype) {
  if (at::isComplexType(dtype)) return dtype;
  const bool is_single = dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
  return is_single ? at::kFloat : at::kDouble;
}

}  // namespace

at::Tensor scaled_by(const at::Tensor& tensor, double factor) {
  const at::AutoGradMode no_grad(false);
  const at::ScalarType dtype = tensor.scalar_type();
  at::Tensor out = at::mul(tensor.to(computed_in(dtype)), factor);
  if (at::isIntegralType(dtype, /*includeBool=*/true)) out = at::trunc(out);
  return out.to(dtype);
}

}  // namespace ringdist
