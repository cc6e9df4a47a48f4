// What all ranks must say alike of one call, as what negotiation compares: and what a rank that has
// joined makes its part of. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithm/schedule.h"
#include "base/dtype.h"
#include "base/error.h"
#include "negotiation/order/call_description.h"

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

}  // namespace ringdist
