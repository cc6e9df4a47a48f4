#include "cuda/stream/stream_schedules.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "cuda/stream/coding_of.h"
#include "plan/coded_plan.h"

namespace ringdist::gpu {
namespace {

constexpr size_t kMostKept = 64;

// The planner's, but for those by hosts: a stream sees ranks, no hosts.
const Algorithm& algorithm_of(const DeviceOp& op) {
  const Algorithm* const planned = op.plan.algorithm;
  if (planned != nullptr && !planned->by_hosts) return *planned;
  const auto fits = [&](const Algorithm& one) {
    return one.supports(op.request.kind) && one.rank_ordered && one.serves_codecs &&
           !one.by_hosts && !one.only_for_few;
  };
  const auto found = std::ranges::find_if(algorithms(), fits);
  ringdist::check(found != algorithms().end(), "no algorithm without hosts for a collective");
  return *found;
}

// The length in front of what `lossless` sends has 32 bits; on the CPU a segment has its own.
Error too_long(const Codec& codec, int64_t count, DType dtype) {
  const auto coding = coding_of(codec, dtype);
  if (!coding || coding->code != Code::kLossless ||
      codec.max_bytes(count, dtype) <= std::numeric_limits<uint32_t>::max())
    return {};
  return Error(ErrorKind::kNotSupported,
               "ringdist: codec '" + std::string(codec.name()) + "' of " + std::to_string(count) +
                   " elements on a device; it takes less than 4 GiB in one piece");
}

}  // namespace

Error StreamSchedules::refusal(const Request& request) const {
  if (reduces(request.kind) && size_ > SourceList::kMost)
    return Error(ErrorKind::kNotSupported,
                 "ringdist: " + std::string(collective_name(request.kind)) + " of " +
                     std::to_string(size_) + " ranks' tensors on devices; at most " +
                     std::to_string(SourceList::kMost) + " reduce without NCCL");
  if (!request.blocks) return {};
  for (const BlockPart& part : request.blocks->parts)
    for (const CodecPtr& codec : {part.codecs.contribution, part.codecs.result})
      if (Error error = too_long(*codec, part.count, request.dtype)) return error;
  return {};
}

Error StreamSchedules::prepare(const Request& request) {
  if (Error error = refusal(request)) return error;
  return request.blocks && !malformed() ? make_malformed() : Error();
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

Shape StreamSchedules::shape_of(const Request& request) const {
  Shape shape{rank_, size_, request.root, request.count, request.input_parts, request.output_parts};
  if (request.blocks && request.kind == Collective::kAllreduce)
    shape.shards = coded_shards(*request.blocks, size_);
  return shape;
}

const StreamSchedule& StreamSchedules::find(const DeviceOp& op) {
  const Algorithm& algorithm = algorithm_of(op);
  const Request& request = op.request;
  const auto make = [&] {
    return make_stream_schedule(algorithm, request.kind, shape_of(request));
  };
  if (!request.input_parts.empty() || !request.output_parts.empty()) return last_ = make();
  const Key key{&algorithm, request.kind, request.count, request.root, op.plan.coding_hash};
  if (const auto it = schedules_.find(key); it != schedules_.end()) return it->second;
  if (schedules_.size() >= kMostKept) schedules_.clear();
  return schedules_[key] = make();
}

Error StreamSchedules::enqueue(const DeviceOp& op, Stream stream, Link& link, Held& held) {
  const StreamSchedule& schedule = find(op);
  StreamOp on_stream(op, *schedule.steps, rank_, size_, cuda_, stream);
  if (!op.request.blocks)
    return gpu::enqueue(schedule, on_stream, *plain_stream_arithmetic(on_stream), link);
  const auto word = malformed();
  held.push_back(word);  // kernels write there
  return gpu::enqueue(schedule, on_stream, *coded_stream_arithmetic(on_stream, word.get()), link);
}

}  // namespace ringdist::gpu
