// Memory of gradients and residuals, with the operations on it apart from encoding. It is the
// host's memory or that of a device. One thread at a time. Calls take effect in order, also
// relative to ops that use the memory. A dtype is float32, bfloat16 or float16. Failures of a
// device are exceptions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffers.h"
#include "base/check.h"
#include "base/dtype.h"
#include "kernel/residual_span.h"

namespace ringdist {

// Interface for allocations and vector operations in one memory.
class GradientMemory {
 public:
  virtual ~GradientMemory() = default;

  // Returns the device and stream for ops that must come after all calls so far. Returns nothing
  // for host memory.
  virtual std::optional<DeviceStream> place() const = 0;

  // Allocates `count` zeros.
  virtual std::shared_ptr<float> zeros(int64_t count) = 0;
  // Copy between this memory and host memory. They return when the values have been copied.
  virtual void read(const float* from, std::span<float> to) = 0;
  virtual void write(std::span<const float> from, float* to) = 0;

  // Returns |values + residual|^2. The sum of an element is rounded to fp32, and squares are added
  // in double. A null residual counts as zeros. On a device it waits for the result.
  virtual double squared_norm(DType dtype, ConstBytes values, const float* residual) = 0;
  // Returns true if every value is +0 or -0. On a device it waits for the result.
  virtual bool all_zero(DType dtype, ConstBytes values) = 0;
  // Computes values *= factor in fp32, with the factor rounded to fp32, and rounds to `dtype`.
  virtual void scale(DType dtype, Bytes values, double factor) = 0;
  // Adds a residual to a gradient that will be sent without error feedback: values += residual.
  // Only the error of rounding to `dtype` remains as residual. Where that is not finite, the
  // residual is kept.
  virtual void apply_residual(DType dtype, Bytes values, ResidualSpan residual) = 0;
};

// Array of floats in a GradientMemory, which must outlive it. Copies share the array.
class FloatBuffer {
 public:
  FloatBuffer() = default;  // empty, in no memory
  // Allocates `count` zeros.
  FloatBuffer(GradientMemory& memory, size_t count)
      : memory_(&memory), data_(memory.zeros(static_cast<int64_t>(count))), count_(count) {}

  float* data() const { return data_.get(); }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  // Returns the memory of the array, or null for a default-constructed one.
  GradientMemory* memory() const { return memory_; }
  // Returns the memory as bytes, which kernels for any dtype take.
  Bytes bytes() const { return std::as_writable_bytes(std::span(data(), count_)); }

  // Copies the values to host memory.
  std::vector<float> on_host() const {
    std::vector<float> out(count_);
    if (count_ > 0) memory_->read(data(), out);
    return out;
  }
  // Replaces all values; the sizes must be equal.
  void assign(std::span<const float> values) {
    check(values.size() == count_, "floats for a buffer of another size");
    if (count_ > 0) memory_->write(values, data());
  }

 private:
  GradientMemory* memory_ = nullptr;
  std::shared_ptr<float> data_;
  size_t count_ = 0;
};

// Returns the memory of the host, which lives as long as the process. It has no state, so threads
// may use it concurrently for different arrays.
GradientMemory& host_memory();

}  // namespace ringdist
