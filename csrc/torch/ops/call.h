// Call: one operation, checked and ready to be submitted, with all that the op and its Work need.
#pragma once

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "engine/hooks.h"
#include "engine/op/op.h"
#include "torch/base/errors.h"
#include "torch/base/tensors.h"

namespace ringdist {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

// This rank's number in its group, and the size of the group.
struct RankAndSize {
  int rank;
  int size;
};

// Returns the number of elements of each tensor.
inline std::vector<int64_t> sizes_of(const Tensors& tensors) {
  std::vector<int64_t> out;
  for (const at::Tensor& tensor : tensors) out.push_back(tensor.numel());
  return out;
}

// Returns the count for parts that all ranks have alike: the size of the largest part. If all parts
// are equal, empties `parts`, since the count describes them. `parts` must not be empty.
inline int64_t normalize_parts(std::vector<int64_t>& parts) {
  const auto [least, most] = std::ranges::minmax(parts);
  if (least == most) parts.clear();
  return most;
}

// Appends `size` parts to a buffer. The r-th part has the r-th of `size` equal parts of each
// tensor.
inline void append_by_rank(Buffer& buffer, const Tensors& contiguous, int size) {
  for (int rank = 0; rank < size; ++rank)
    for (const at::Tensor& tensor : contiguous) {
      const int64_t count = tensor.numel() / size;
      auto* const data = static_cast<std::byte*>(tensor.data_ptr());
      buffer.append(data + rank * count * static_cast<int64_t>(tensor.element_size()), count);
    }
}

// An operation that has not been submitted. Functions that throw do so for invalid arguments. One
// thread at a time.
struct Call {
  // The caller's options for waiting. An unset timeout means the group's.
  struct WaitOptions {
    std::chrono::milliseconds timeout;
    bool async;
  };
  template <typename Options>
  static WaitOptions wait_options(const Options& options) {
    return {options.timeout, options.asyncOp};
  }

  Call(Collective kind, DType dtype, c10d::OpType type, const char* title, WaitOptions wait_options)
      : type(type), title(title), async(wait_options.async) {
    request.kind = kind;
    request.dtype = dtype;
    if (wait_options.timeout != c10d::kUnsetTimeout)
      request.timeout = value_of(checked_timeout(title, wait_options.timeout));
    request.input = Buffer(dtype_size(dtype));
    request.output = Buffer(dtype_size(dtype));
  }

  // The next three append a tensor that the op reads, writes, or updates in place. `apart` forces a
  // copy of it. Each returns the contiguous tensor that the engine uses.
  at::Tensor read(const at::Tensor& tensor, bool apart = false) {
    return add(request.input, staging.use(tensor, /*reads=*/true, /*writes=*/false, apart));
  }
  at::Tensor write(const at::Tensor& tensor, bool apart = false) {
    return add(request.output, staging.use(tensor, /*reads=*/false, /*writes=*/true, apart));
  }
  at::Tensor update(const at::Tensor& tensor, bool apart = false) {
    return add(request.output, staging.use(tensor, /*reads=*/true, /*writes=*/true, apart));
  }
  // Appends a contiguous tensor to a buffer and keeps it alive.
  at::Tensor add(Buffer& buffer, at::Tensor ours) {
    append(buffer, ours);
    memory.push_back(ours);
    return ours;
  }
  // Appends all `outputs` to the buffer that the op writes. Outputs that share bytes are copied.
  void write_outputs() {
    const std::vector<bool> shared = overlapping(outputs);
    for (size_t i = 0; i < outputs.size(); ++i) write(outputs[i], /*apart=*/shared[i]);
  }

  OpRequest request;
  Staging staging;                         // copies for the caller's tensors
  std::vector<CompletionPtr> completions;  // one per call that was fused into it
  Tensors inputs;                          // for the profiler
  Tensors outputs;                         // for the Future
  Tensors memory;                          // tensors behind the buffers
  c10d::OpType type;
  const char* title;  // a literal, such as "ringdist:all_reduce"
  bool async;
};

}  // namespace ringdist
