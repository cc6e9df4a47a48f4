// What the owner of a Session hands it, and what it gives back: buckets of gradients as spans, and
// the ops that average them.
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

// DDP lays the elements of a gradient into its bucket as they lie in the parameter's memory, if
// that has no gaps and no overlaps (channels_last, a transposed weight), row-major otherwise. A
// residual has that order; a checkpoint has row-major values, whatever the memory of the model that
// loads it.

// How one parameter lies. Immutable: any thread.
class MemoryOrder {
 public:
  // Row-major.
  explicit MemoryOrder(std::vector<int64_t> sizes);
  // In elements, one for each size: without gaps and overlaps.
  MemoryOrder(std::vector<int64_t> sizes, std::vector<int64_t> strides);

  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t count() const;
  // The size of the dimension that varies least in memory, those of size 1 aside: the rows of the
  // parameter's matrix. 1 for one element.
  int64_t rows() const;

  // count() values of one in the order of the other.
  std::vector<float> to_row_major(std::span<const float> in_memory) const;
  std::vector<float> from_row_major(std::span<const float> row_major) const;

 private:
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
};

// What names a parameter as long as its holder is held.
using ParameterKey = const void*;

struct ParameterInfo {
  ParameterKey key = nullptr;
  std::shared_ptr<const void> holder;
  MemoryOrder order;
  bool complex = false;
  GradientMemory* memory = &host_memory();  // where its gradients are; outlives all Sessions
};

// Gradients one after another, without gaps.
struct Bucket {
  struct Part {
    ParameterKey key = nullptr;
    int64_t count = 0;  // elements of the bucket: two for each of a complex parameter
  };
  size_t index = 0;   // in the backward pass; those that no rank used may be missing
  bool last = false;  // none comes after it
  DType dtype = DType::kFloat32;
  int64_t count = 0;  // elements
  Bytes values;
  std::vector<Part> parts;
  // Of parts[i]; called where the Session does not know its key.
  std::function<ParameterInfo(size_t i)> describe;
};

// A matrix of a bucket, and where its approximation and the next one begin.
struct LowRankInput {
  BucketPlan::LowRank matrix;
  FloatBuffer right;
  FloatBuffer next_right;
};

// How a bucket is to be averaged. `keep_alive` holds the residuals that the plan points to.
struct PlannedBucket {
  BucketPlan plan;
  std::vector<LowRankInput> low_rank;
  std::shared_ptr<void> keep_alive;
};

// A bucket on its way. Any thread. What one says of itself holds from the moment on at which
// anybody can know that it has ended: callbacks may come later.
class PendingBucket {
 public:
  virtual ~PendingBucket() = default;

  virtual bool ended() const = 0;
  virtual bool failed() const = 0;  // once it has ended
  virtual void wait() const = 0;    // until it has ended, well or not
  // Whoever waits for its values does not wait until it has ended: those are for a device.
  virtual bool ends_later() const { return false; }
  // Runs once it has ended, at once if it has; on any thread.
  virtual void on_end(std::function<void()> callback) = 0;
};

using PendingBucketPtr = std::shared_ptr<PendingBucket>;

// Starts the ops of a bucket: all ranks in the same order. What it throws reaches whoever handed
// the bucket in.
using StartBucket = std::function<PendingBucketPtr(PlannedBucket)>;

}  // namespace ringdist
