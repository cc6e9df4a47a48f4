#include "cuda/stream/stream_schedules.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "cuda/stream/path_rules.h"
#include "plan/compressed_plan.h"

namespace ringdist::gpu {
namespace {

constexpr size_t kMostKept = 64;

}  // namespace

Error StreamSchedules::prepare(const OpSpec& request) {
  if (Error error = schedule_refusal(request, size_)) return error;
  return request.codec_map && !malformed() ? make_malformed() : Error();
}

Error StreamSchedules::make_malformed() {
  const Result<void*> made = cuda_.allocate_pinned(sizeof(int));
  if (!made.ok()) return made.error();
  std::shared_ptr<int> word(static_cast<int*>(made.value()),
                            [cuda = &cuda_](int* memory) { cuda->free_pinned(memory); });
  *word = 0;
  std::lock_guard lock(mutex_);
  malformed_ = std::move(word);
  return {};
}

std::shared_ptr<int> StreamSchedules::malformed() const {
  std::lock_guard lock(mutex_);
  return malformed_;
}

Error StreamSchedules::check() const {
  const auto word = malformed();
  if (!word || *static_cast<const volatile int*>(word.get()) == 0) return {};
  return Error(ErrorKind::kProtocol, "ringdist: bytes from another rank that no encoder writes");
}

Shape StreamSchedules::shape_of(const OpSpec& request) const {
  Shape shape{rank_, size_, request.root, request.count, request.input_parts, request.output_parts};
  if (request.codec_map && request.kind == Collective::kAllreduce)
    shape.shards = compressed_shards(*request.codec_map, size_);
  return shape;
}

const StreamSchedule& StreamSchedules::find(const DeviceOp& op) {
  const Algorithm& algorithm = stream_algorithm(op.request.kind, op.plan.algorithm);
  const OpSpec& request = op.request;
  const auto make = [&] {
    return make_stream_schedule(algorithm, request.kind, shape_of(request));
  };
  if (!request.input_parts.empty() || !request.output_parts.empty()) return last_ = make();
  const Key key{&algorithm, request.kind, request.count, request.root, op.plan.compression_hash};
  if (const auto it = schedules_.find(key); it != schedules_.end()) return it->second;
  if (schedules_.size() >= kMostKept) schedules_.clear();
  return schedules_[key] = make();
}

Error StreamSchedules::enqueue(const DeviceOp& op, Stream stream, DeviceLink& link,
                               KeptAlive& held) {
  const StreamSchedule& schedule = find(op);
  StreamOp on_stream(op, *schedule.steps, rank_, size_, cuda_, stream);
  if (!op.request.codec_map)
    return gpu::enqueue(schedule, on_stream, *plain_stream_arithmetic(on_stream), link);
  const auto word = malformed();
  held.push_back(word);  // kernels write there
  return gpu::enqueue(schedule, on_stream, *compressed_stream_arithmetic(on_stream, word.get()),
                      link);
}

}  // namespace ringdist::gpu
