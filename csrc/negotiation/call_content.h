// Contents of a named call that must be equal on all ranks. Negotiation compares them in encoded
// form, and a joined rank derives its neutral part from them. Pure functions; any thread.
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

// Description of a call: kind of operation, tensors and parameters.
struct CallContent {
  // Stands for a length that may differ between ranks.
  static constexpr int64_t kAny = -1;

  // Type and shape of one tensor.
  struct Tensor {
    DType dtype = DType::kFloat32;
    std::vector<int64_t> shape;  // kAny where ranks may have different lengths

    // Returns the number of elements. Lengths that are kAny count as 1.
    int64_t count() const;
  };

  Collective kind = Collective::kAllreduce;
  std::vector<Tensor> tensors;
  ReduceOp reduce_op = ReduceOp::kNone;  // kNone unless `kind` reduces
  int root = 0;                          // used only by kinds with a root
  double prescale = 1;
  double postscale = 1;
  std::string variant;        // in words, anything else that must be equal, such as "Adasum"
  std::string where = "cpu";  // type of device

  // Returns the description for negotiation. Allreduces of one dtype that differ only in shapes and
  // factors get the same number in `batch`, so that they may be fused.
  CallDescription describe() const;
  // Formats the content, such as "all_reduce (float32[1000], SUM, on cpu)".
  std::string to_string() const;
  // Decodes CallDescription::content. Error: kProtocol.
  static Result<CallContent> parse(const std::string& content);
};

// Compares the contents of two descriptions. Returns the first tensor that differs, such as "tensor
// 6: float32[2], float32[3]". Returns an empty string if none does, or if a content cannot be
// decoded. Tensors that only one of the two has do not count.
std::string first_tensor_difference(const std::string& one, const std::string& other);

// Memory on a device with `count` equal elements. A joined rank contributes it to calls of the
// others, because it has no values of its own.
struct FilledMemory {
  std::byte* data;
  std::shared_ptr<void> keep;
  DeviceStream device_stream;  // stream that the caller of FillOnDevice uses
};
// An element as bytes. Only the first bytes count, as many as the dtype has.
using ElementBytes = std::array<std::byte, 16>;
// Allocates and fills memory on the rank's device. `width` is the size of an element in bytes. It
// must return quickly and runs without the GIL. It is null if the rank has no device.
using FillOnDevice =
    std::function<Result<FilledMemory>(int64_t count, size_t width, const ElementBytes& value)>;

// Returns the ops of a joined rank for a call of the others: one allreduce per dtype, and none for
// a barrier. Zeros are used for SUM and AVG, which divides by the full size all the same. MIN, MAX
// and PRODUCT get their neutral element.
//
// The ops own their memory, which has as many pieces as the other ranks' tensors. Error
// kNotSupported: the call is of another kind, or on a device that this rank does not have. Error
// kProtocol: the content cannot be decoded.
Result<std::vector<OpRequest>> joined_contribution(const CallDescription& description,
                                                   const FillOnDevice& on_device = nullptr);

}  // namespace ringdist
