// Interface between a GradientCompressor and its owner. The owner passes buckets of gradients as
// spans, and receives the planned ops that average them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/buffers.h"
#include "base/dtype.h"
#include "codec/gradient_memory.h"
#include "compress/compression_method.h"

namespace ringdist {

// Order of a parameter's elements in memory, which matters for residuals. Immutable, so any thread
// may use it.
//
// DDP stores a gradient in its bucket in the order of the parameter's memory, if that has no gaps
// and no overlaps (as with channels_last or a transposed weight). Otherwise it stores the gradient
// row-major. A residual has the same order as the gradient. Checkpoints hold row-major values,
// because the model that loads them may have another memory layout.
class MemoryOrder {
 public:
  // Creates a row-major order.
  explicit MemoryOrder(std::vector<int64_t> sizes);
  // Creates an order from strides in elements, one per size. It must be without gaps and overlaps.
  // Different numbers of sizes and strides fail a check.
  MemoryOrder(std::vector<int64_t> sizes, std::vector<int64_t> strides);

  const std::vector<int64_t>& sizes() const { return sizes_; }
  // Returns the number of elements.
  int64_t count() const;
  // Returns the number of rows if the parameter is seen as a matrix for PowerSGD. That is the size
  // of the dimension with the largest stride, ignoring dimensions of size 1. Returns 1 for one
  // element.
  int64_t rows() const;

  // Convert count() values between memory order and row-major order. Another number of values fails
  // a check.
  std::vector<float> to_row_major(std::span<const float> in_memory) const;
  std::vector<float> from_row_major(std::span<const float> row_major) const;

 private:
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
};

// Identifies a parameter. It is valid as long as ParameterInfo::holder is held.
using ParameterKey = const void*;

// Description of one parameter.
struct ParameterInfo {
  ParameterKey key = nullptr;
  // Keeps the parameter alive, so that its key is not reused.
  std::shared_ptr<const void> holder;
  MemoryOrder order;
  bool complex = false;
  // Place of its gradients. It outlives all GradientCompressors.
  GradientMemory* memory = &host_memory();
};

// Gradients of several parameters, one after another without gaps.
struct Bucket {
  // One parameter's gradient in the bucket.
  struct Part {
    ParameterKey key = nullptr;
    int64_t count = 0;  // elements in the bucket; a complex parameter has two per element
  };
  size_t index = 0;   // position in the backward pass; buckets that no rank used are missing
  bool last = false;  // it is the last one of its backward pass
  DType dtype = DType::kFloat32;
  int64_t count = 0;  // elements
  // Memory of all elements. It is averaged in place.
  Bytes values;
  std::vector<Part> parts;
  // Describes the parameter of parts[i]. It is called if its key is new to the GradientCompressor,
  // on the thread that passes the bucket.
  std::function<ParameterInfo(size_t i)> describe;
};

// A matrix of the bucket that PowerSGD averages. `right` is the right factor of the last step,
// where the approximation begins. The new one is written to `next_right`.
struct LowRankInput {
  BucketPlan::LowRank matrix;
  FloatBuffer right;
  FloatBuffer next_right;
};

// Plan for averaging one bucket. `keep_alive` holds the residuals that the plan points to.
struct PlannedBucket {
  BucketPlan plan;
  std::vector<LowRankInput> low_rank;
  std::shared_ptr<void> keep_alive;
};

// A bucket with ops in flight. Any thread may call it.
//
// ended() and failed() are correct from the moment at which any thread can notice the end.
// Callbacks may run later.
class PendingBucket {
 public:
  virtual ~PendingBucket() = default;

  virtual bool ended() const = 0;   // all ops have completed
  virtual bool failed() const = 0;  // valid once ended() returns true
  virtual void wait() const = 0;    // returns when it has ended, also after a failure
  // Returns true if the ops can complete later than waiters of the values continue. This holds for
  // values that are for a device, because their consumers wait on its stream.
  virtual bool ends_later() const { return false; }
  // Runs the callback on any thread once the bucket has ended, or at once if it has ended already.
  virtual void on_end(std::function<void()> callback) = 0;
};

using PendingBucketPtr = std::shared_ptr<PendingBucket>;

}  // namespace ringdist
