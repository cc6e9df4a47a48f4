// The part in a call of a rank that has joined, and so has nothing to give: memory that changes no
// result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/device_stream.h"
#include "base/error.h"
#include "engine/op/op.h"
#include "negotiation/order/call_description.h"

namespace ringdist {

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
