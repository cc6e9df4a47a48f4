// What all ranks must say alike of one call, as what negotiation compares: and what a rank that has
// joined makes its part of. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithm/schedule.h"
#include "base/buffers.h"
#include "base/dtype.h"
#include "base/error.h"
#include "engine/op/op.h"
#include "negotiation/order/call_messages.h"

namespace ringdist {

struct CallContent {
  static constexpr int64_t kAny = -1;

  struct Tensor {
    DType dtype = DType::kFloat32;
    std::vector<int64_t> shape;  // kAny: of that length ranks may have their own

    // Elements, with lengths that are kAny as 1.
    int64_t count() const;
  };

  Collective kind = Collective::kAllreduce;
  std::vector<Tensor> tensors;
  ReduceOp reduce_op = ReduceOp::kNone;  // where `kind` reduces
  int root = 0;                          // where it has one
  double prescale = 1;
  double postscale = 1;
  std::string variant;        // what else must be alike, in words: "Adasum"
  std::string where = "cpu";  // the device

  // Allreduces of one dtype that differ only in shapes and factors have the same number for
  // `batch`.
  CallDescription describe() const;
  // "all_reduce (float32[1000], SUM, on cpu)"
  std::string to_string() const;
  // Of a description's content. Error: kProtocol.
  static Result<CallContent> parse(const std::string& content);
};

// Of two descriptions' contents, the first tensor that is not alike: "tensor 6: float32[2],
// float32[3]"; empty: there is none.
std::string first_tensor_difference(const std::string& one, const std::string& other);

// The part in a call of a rank that has joined, and so has nothing to give: memory that changes no
// result.

// `count` elements that are all alike, in a device's memory.
struct FilledMemory {
  std::byte* data;
  std::shared_ptr<void> keep;
  DeviceStream device_stream;  // of who uses it
};
// Its first bytes, as many as the dtype has.
using ElementBytes = std::array<std::byte, 16>;
// Brief, without the GIL; `width`: bytes of an element. Null: this rank has no device.
using FillOnDevice =
    std::function<Result<FilledMemory>(int64_t count, size_t width, const ElementBytes& value)>;

// Allreduces, one for each dtype, of zeros for SUM and AVG - which divides by the full size all the
// same - and of what leaves MIN, MAX and PRODUCT as they are; of a barrier nothing. They hold their
// memory, which is as many pieces as the others' tensors. Errors: kNotSupported, it is neither, or
// on a device, of which this rank has none; kProtocol, its content cannot be read.
Result<std::vector<OpRequest>> joined_contribution(const CallDescription& description,
                                                   const FillOnDevice& on_device = nullptr);

}  // namespace ringdist
