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

// The engine's dtype, or an Error (kNotSupported) listing what `reduce_op` takes; kNone: a tensor
// that is only moved. Dtypes that nobody computes with are moved as bytes.
Result<DType> to_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       ReduceOp reduce_op = ReduceOp::kNone);

// kInvalidArgument: "ringdist: <op>: <what>"
Error invalid_argument(std::string_view op, const std::string& what);

// On the CPU. `argument` names the tensor in the Error, also below.
Error check_on_cpu(std::string_view op, const std::string& argument, const at::Tensor& tensor);

// On a device that we may serve.
Error check_device(std::string_view op, const std::string& argument, const at::Tensor& tensor);

// Dense, on a device that we serve and, where it is written, not overlapping itself.
Error check_tensor(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                   bool written);
// The only one of a list.
Error check_single(std::string_view op, const std::string& argument,
                   const std::vector<at::Tensor>& tensors, bool written);
// Not empty; each dense and so on. `argument[i]` names one in the Error.
Error check_list(std::string_view op, const std::string& argument,
                 const std::vector<at::Tensor>& tensors, bool written);
// As many elements as `like`, which is called `other`.
Error check_same_size(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                      const std::string& other, const at::Tensor& like);
Error check_same_dtype(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                       const at::Tensor& like);

// "[3]", after the name of a list
inline std::string index(size_t i) { return "[" + std::to_string(i) + "]"; }

// "float32[2, 3]"
std::string describe(const at::Tensor& tensor);

// Whether the two use common bytes.
bool share_memory(const at::Tensor& a, const at::Tensor& b);
bool share_memory(const at::Tensor& a, const std::vector<at::Tensor>& others);
// For each tensor, whether it uses bytes that another one of the list uses, too.
std::vector<bool> overlapping(const std::vector<at::Tensor>& tensors);

// Contiguous stand-ins for tensors, held until the op is over.
class Staging {
 public:
  // The tensor itself if it is contiguous, else a contiguous copy. With `writes` the copy goes back
  // to the tensor in finish(); with `reads` it starts with the tensor's values. `apart` forces a
  // copy.
  at::Tensor use(const at::Tensor& tensor, bool reads, bool writes, bool apart = false);

  // `ours`, as large, goes back to the tensor in finish().
  void give_back(const at::Tensor& tensor, const at::Tensor& ours) {
    back_.emplace_back(tensor, ours);
  }

  // Takes over the copies of another one.
  void add(Staging other);

  bool must_finish() const { return !back_.empty(); }
  // Copies back, in the order of the calls: of tensors that share memory the last one wins.
  void finish() const;
  // Calls fn(the caller's tensor, ours) for each of what finish() copies back.
  template <typename Fn>
  void for_each_back(Fn fn) const {
    for (const auto& [theirs, ours] : back_) fn(theirs, ours);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;  // the caller's, ours
};

void append(Buffer& buffer, const at::Tensor& contiguous);

// Copies `result` into a tensor of the caller's, on any thread: outside autograd, and in inference
// mode where the tensor was made in it.
void write_result(const at::Tensor& tensor, const at::Tensor& result);

}  // namespace ringdist
