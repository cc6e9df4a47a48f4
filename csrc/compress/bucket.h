// What the owner of a Session hands it, and what it gives back: buckets of gradients as spans, and
// the ops that average them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/buffers.h"
#include "base/dtype.h"
#include "codec/float_buffer.h"
#include "codec/host_memory.h"
#include "compress/compression_method.h"
#include "compress/memory_order.h"

namespace ringdist {

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
