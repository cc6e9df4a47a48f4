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

  Collective kind = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kNone;      // where `kind` reduces
  int root = 0;                              // where it has one
  std::vector<std::vector<int64_t>> shapes;  // kAny: of that length ranks may have their own
  double prescale = 1;
  double postscale = 1;
  std::string codec;          // of `compression=`; "": none
  std::string where = "cpu";  // the device, and what else tells tensors of one dtype apart

  // Elements of all shapes together, with lengths that are kAny as 1.
  int64_t count() const;
  // Allreduces that differ only in shapes and factors have the same number for `batch`.
  CallDescription describe() const;
  // Of a description's content. Error: kProtocol.
  static Result<CallContent> parse(const std::string& content);
};

}  // namespace ringdist
