// Arithmetic of an uncompressed op on a stream. Values travel unchanged, and are reduced directly
// from the memory where they arrived.
#include "cuda/stream/stream_arithmetic.h"

namespace ringdist::gpu {
namespace {

class PlainStreamArithmetic final : public StreamArithmetic {
 public:
  explicit PlainStreamArithmetic(StreamOp& op) : op_(op) {}

  DeviceBytes incoming(int step, int) const override {
    return {nullptr, op_.bytes(range(step).count)};
  }
  std::byte* landing(int step) const override { return op_.whole(range(step)); }

  Result<DeviceBytes> run(int step, std::span<const DeviceBytes> arrived) override {
    const Step& what = op_.step(step).step;
    switch (what.kind) {
      case StepKind::kSend:
        return read(what.range);
      case StepKind::kRecv:
      case StepKind::kRelay:
        if (Error error = op_.write(what.range, arrived[0].data)) return error;
        return arrived[0];
      case StepKind::kCopy:
        return copy(what);
      case StepKind::kReduce:
        return reduce(what, arrived);
    }
    return DeviceBytes{};
  }

 private:
  const Range& range(int step) const { return op_.step(step).step.range; }

  Result<DeviceBytes> read(const Range& from) {
    const auto values = op_.read(from);
    if (!values.ok()) return values.error();
    return DeviceBytes{const_cast<std::byte*>(values.value()), op_.bytes(from.count)};
  }

  Result<DeviceBytes> copy(const Step& what) {
    const auto from = op_.read(what.sources[0].range);
    if (!from.ok()) return from.error();
    if (Error error = op_.write(what.range, from.value())) return error;
    return DeviceBytes{};
  }

  Result<DeviceBytes> reduce(const Step& what, std::span<const DeviceBytes> arrived) {
    const auto out = op_.place(what.range);
    if (!out.ok()) return out.error();
    const bool averages = what.finish && op_.op.request.reduce_op == ReduceOp::kAvg;
    ReduceCall call{op_.op.request.dtype, op_.op.request.reduce_op, {}, averages ? op_.size : 1,
                    out.value(),          what.range.count};
    size_t slot = 0;
    for (const Source& source : what.sources) {
      if (source.peer >= 0) {
        call.sources.at[call.sources.count++] = arrived[slot++].data;
        continue;
      }
      const auto own = op_.read(source.range);
      if (!own.ok()) return own.error();
      call.sources.at[call.sources.count++] = own.value();
    }
    if (Error error = op_.cuda.reduce(call, op_.stream)) return error;
    if (Error error = op_.write(what.range, out.value())) return error;
    return DeviceBytes{};
  }

  StreamOp& op_;
};

}  // namespace

std::unique_ptr<StreamArithmetic> plain_stream_arithmetic(StreamOp& op) {
  return std::make_unique<PlainStreamArithmetic>(op);
}

}  // namespace ringdist::gpu
