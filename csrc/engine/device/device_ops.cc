#include "engine/device/device_ops.h"

#include <utility>

#include "base/error.h"

namespace ringdist {
namespace {

// Returns the runner's view of an op.
DeviceOp device_op(const Op& op, std::shared_ptr<void> memory) {
  DeviceOp out;
  out.request = op.request;
  out.input = op.request.input;
  out.output = op.request.output;
  out.plan = op.plan;
  out.number = op.number;
  out.text = op.describe();
  out.deadline = op.deadline;
  out.device_stream = *op.request.device_stream;
  out.keep_alive = std::move(memory);
  return out;
}

}  // namespace

TimePoint DeviceOps::deadline_of(const OpRequest& request) const {
  return Clock::now() + (request.timeout.count() > 0 ? request.timeout : delegate_.timeout());
}

// A failure to prepare the op may end the group (see end_group()). If the group had failed before,
// returns its first cause instead.
Result<std::shared_ptr<DeviceOps::OwnedRunner>> DeviceOps::prepared(const OpRequest& request,
                                                                    TimePoint deadline) {
  if (Error error = delegate_.refusal()) return error;
  auto held = made(*request.device_stream, deadline);
  if (!held.ok()) return first_cause(held.error());
  if (Error error = held.value()->runner->prepare(*request.device_stream, request, deadline)) {
    const Error first = first_cause(error);
    end_group(error);
    return first;
  }
  return held;
}

// Errors that all ranks get alike leave the group usable.
void DeviceOps::end_group(const Error& cause) {
  switch (cause.kind()) {
    case ErrorKind::kInvalidArgument:
    case ErrorKind::kNotSupported:
    case ErrorKind::kAborted:
      return;
    default:
      delegate_.end_group("an operation could not be prepared on its device: " + cause.message());
  }
}

Error DeviceOps::prepare(const std::vector<const OpRequest*>& requests) {
  std::lock_guard one_at_a_time(order_);
  for (const OpRequest* request : requests) {
    const auto held = prepared(*request, deadline_of(*request));
    if (!held.ok()) return held.error();
  }
  return {};
}

Result<MakeDeviceRunner> DeviceOps::split(const std::vector<int>& ranks) {
  std::lock_guard one_at_a_time(order_);
  if (Error error = delegate_.refusal()) return error;
  std::shared_ptr<OwnedRunner> held;
  {
    std::lock_guard lock(mutex_);
    held = made_;
  }
  if (!held) return make_;
  auto made = held->runner->split(ranks, Clock::now() + delegate_.timeout());
  if (made.ok()) return made.value() ? made : make_;
  const Error first = first_cause(made.error());
  const ErrorKind kind = made.error().kind();
  if (kind != ErrorKind::kInvalidArgument && kind != ErrorKind::kAborted)
    delegate_.end_group("it could not be split: " + made.error().message());
  return first;
}

Result<std::shared_ptr<Op>> DeviceOps::submit(OpRequest request) {
  std::lock_guard one_at_a_time(order_);
  const TimePoint deadline = deadline_of(request);
  request.on_device = true;
  const auto held = prepared(request, deadline);
  if (!held.ok()) return held.error();
  DeviceRunner& runner = *held.value()->runner;
  request.timeout = milliseconds_until(deadline);
  auto memory = std::exchange(request.keep_alive, nullptr);  // the runner has it from here on
  auto op = delegate_.accept(std::move(request));
  if (!op.ok()) return op;
  return start(runner, std::move(op.value()), std::move(memory));
}

// If the runner does not start the op, reports this as the op's end, since it has a number and
// other ranks have started it.
Result<std::shared_ptr<Op>> DeviceOps::start(DeviceRunner& runner, std::shared_ptr<Op> op,
                                             std::shared_ptr<void> memory) {
  Start started = [&]() -> Start {
    try {
      return runner.start(device_op(*op, std::move(memory)), delegate_.when_ended(op));
    } catch (...) {
      return current_exception_error();
    }
  }();
  if (started.ok()) {
    op->device_work = std::move(started.value());
    return op;
  }
  const Error error = first_cause(
      started.error().prefixed("ringdist: " + op->describe() + " could not be started: "));
  delegate_.when_ended(op)(started.error());  // it is in flight on the other ranks
  return error;
}

// Makes the runner only when the members have been found, since plans depend on them. It does
// not hold mutex_ meanwhile, so that abort() and end() need not wait. Then keep() finds out if they
// came.
Result<std::shared_ptr<DeviceOps::OwnedRunner>> DeviceOps::made(const DeviceStream& place,
                                                                TimePoint deadline) {
  {
    std::lock_guard lock(mutex_);
    if (made_) return made_;
  }
  if (!make_)
    return Error(ErrorKind::kNotSupported, "ringdist: group '" + group_ +
                                               "' has nothing that runs operations on device " +
                                               std::to_string(place.device));
  if (Error error = delegate_.await_members(deadline)) return error;
  auto out = std::make_shared<OwnedRunner>();
  out->group = delegate_.runner_group();
  auto runner = make_(*out->group);
  if (!runner.ok()) return runner.error();
  out->runner = std::move(runner.value());
  if (Error error = keep(out)) return error;
  return out;
}

Error DeviceOps::keep(const std::shared_ptr<OwnedRunner>& made) {
  bool aborted = false;
  {
    std::lock_guard lock(mutex_);
    if (ended_) return {ErrorKind::kAborted, "ringdist: group '" + group_ + "' has ended"};
    made_ = made;
    aborted = aborted_;
  }
  if (aborted) made->runner->abort();
  return {};
}

Error DeviceOps::first_cause(const Error& error) const {
  const Error first = delegate_.refusal();
  return first ? first : error;
}

void DeviceOps::abort() {
  std::shared_ptr<OwnedRunner> held;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(aborted_, true)) return;
    held = made_;
  }
  if (held) held->runner->abort();
}

void DeviceOps::end(bool aborts) {
  if (aborts) abort();
  std::shared_ptr<OwnedRunner> held;  // destroyed without the mutex
  std::lock_guard lock(mutex_);
  ended_ = true;
  held.swap(made_);
}

bool DeviceOps::any() const {
  std::lock_guard lock(mutex_);
  return made_ != nullptr;
}

}  // namespace ringdist
