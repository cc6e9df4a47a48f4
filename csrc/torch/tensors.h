// Tensors as the engine's buffers: checks what a caller gave, before anything is sent, and bridges
// layouts that the engine does not move (a contiguous copy in, and a copy back at the end).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/dtype.h"
#include "base/error.h"

namespace ringdist {

// The engine's dtype, or an Error (kNotSupported) listing what there is.
Result<DType> to_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       bool reduces);

// Dense, on a device that we serve and, where it is written, not overlapping itself. `argument`
// names it in the Error.
Error check_tensor(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                   bool written);
// The only one of a list.
Error check_single(std::string_view op, const std::string& argument,
                   const std::vector<at::Tensor>& tensors, bool written);
Error check_same_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       const at::Tensor& like);

// "float32[2, 3]"
std::string describe(const at::Tensor& tensor);

// Whether the two use common bytes.
bool share_memory(const at::Tensor& a, const at::Tensor& b);

// Contiguous stand-ins for tensors, held until the op is over.
class Staging {
 public:
  // The tensor itself if it is contiguous, else a contiguous copy. With `writes` the copy goes back
  // to the tensor in finish(); with `reads` it starts with the tensor's values. `apart` forces a
  // copy.
  at::Tensor use(const at::Tensor& tensor, bool reads, bool writes, bool apart = false);

  bool must_finish() const { return !back_.empty(); }
  void finish() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;  // the caller's, ours
};

void append(Buffer& buffer, const at::Tensor& contiguous);

}  // namespace ringdist
