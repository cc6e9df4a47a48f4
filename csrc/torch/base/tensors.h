// Tensors as buffers of the engine. Checks the tensors of a caller before anything is sent.
// Converts layouts that the engine cannot move, by contiguous copies that are copied back at the
// end. Any thread.
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

// Returns the engine's dtype of a tensor. With kNone, the tensor is only moved, and dtypes without
// arithmetic are moved as bytes. Otherwise fails with kNotSupported and the list of dtypes that
// `reduce_op` accepts. `op` and `argument` name the tensor in errors, as in all functions below.
Result<DType> to_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       ReduceOp reduce_op = ReduceOp::kNone);

// Returns a kInvalidArgument error: "ringdist: <op>: <what>".
Error invalid_argument(std::string_view op, const std::string& what);

// Fails with kNotSupported if the tensor is not on the CPU.
Error check_on_cpu(std::string_view op, const std::string& argument, const at::Tensor& tensor);

// Fails with kNotSupported if the tensor is on a device that can never be served.
Error check_device(std::string_view op, const std::string& argument, const at::Tensor& tensor);

// Checks that a tensor is defined and dense, has memory on a device that may be served and, if
// `written`, does not overlap itself by a stride of 0. Fails with kInvalidArgument, or with
// kNotSupported for the device and the memory.
Error check_tensor(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                   bool written);
// Checks that there is exactly one tensor, and check_tensor().
Error check_single(std::string_view op, const std::string& argument,
                   const std::vector<at::Tensor>& tensors, bool written);
// Checks that the list is not empty, and each tensor by check_tensor(), as `argument[i]`.
Error check_list(std::string_view op, const std::string& argument,
                 const std::vector<at::Tensor>& tensors, bool written);
// Fails with kInvalidArgument unless a tensor has as many elements as `like`, which errors name
// `other`.
Error check_same_size(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                      const std::string& other, const at::Tensor& like);
// Fails with kNotSupported unless a tensor has the dtype of `like`.
Error check_same_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       const at::Tensor& like);

// Returns "[3]", to append to the name of a list.
inline std::string index(size_t i) { return "[" + std::to_string(i) + "]"; }

// Returns "float32[2, 3]".
std::string describe(const at::Tensor& tensor);

// Both return true if the tensors use common bytes. Only the address ranges are compared.
bool share_memory(const at::Tensor& a, const at::Tensor& b);
bool share_memory(const at::Tensor& a, const std::vector<at::Tensor>& others);
// Returns, for each tensor, if it uses bytes that another tensor of the list uses, too.
std::vector<bool> overlapping(const std::vector<at::Tensor>& tensors);

// Contiguous copies of tensors, held until the op has ended. One thread at a time.
class Staging {
 public:
  // Returns the tensor itself if it is contiguous, else a contiguous copy. With `reads`, the copy
  // starts with the tensor's values. With `writes`, finish() copies it back to the tensor. `apart`
  // forces a copy.
  at::Tensor use(const at::Tensor& tensor, bool reads, bool writes, bool apart = false);

  // Makes finish() copy `ours`, which has the same size, to the tensor.
  void give_back(const at::Tensor& tensor, const at::Tensor& ours) {
    back_.emplace_back(tensor, ours);
  }

  // Takes over the copies of another Staging.
  void add(Staging other);

  // Returns true if finish() has something to copy.
  bool must_finish() const { return !back_.empty(); }
  // Copies results back, in the order of the calls. If tensors share memory, the last one wins. May
  // throw what ATen throws.
  void finish() const;
  // Calls fn(the caller's tensor, the copy) for each copy that finish() copies back.
  template <typename Fn>
  void for_each_back(Fn fn) const {
    for (const auto& [theirs, ours] : back_) fn(theirs, ours);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;  // the caller's tensor and the copy
};

// Appends a contiguous tensor to a buffer. The buffer does not hold the tensor.
void append(Buffer& buffer, const at::Tensor& contiguous);

// Copies `result` into a tensor of the caller, on any thread. The copy is outside autograd, and in
// inference mode if the tensor was made in it.
void write_result(const at::Tensor& tensor, const at::Tensor& result);

}  // namespace ringdist
