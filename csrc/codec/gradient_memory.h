// Where gradients and their residuals lie, and what is done to them there besides encoding: in the
// host's memory (codec/gradient_memory.h), or on a device. One thread at a time; calls take effect
// in order, with each other and with the ops that are given the memory. dtype: float32, bfloat16,
// float16.
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

class GradientMemory {
 public:
  virtual ~GradientMemory() = default;

  // Of ops that come after all calls so far; none for the host's memory.
  virtual std::optional<DeviceStream> place() const = 0;

  // `count` zeros.
  virtual std::shared_ptr<float> zeros(int64_t count) = 0;
  // Between this memory and the host's.
  virtual void read(const float* from, std::span<float> to) = 0;
  virtual void write(std::span<const float> from, float* to) = 0;

  // |values + residual|^2, in double; a null residual counts as zeros.
  virtual double squared_norm(DType dtype, ConstBytes values, const float* residual) = 0;
  virtual bool all_zero(DType dtype, ConstBytes values) = 0;
  // values *= factor, in fp32.
  virtual void scale(DType dtype, Bytes values, double factor) = 0;
  // Pays what is owed into a gradient that is to travel without error feedback: values += residual,
  // of which only the rounding to `dtype` stays owed.
  virtual void apply_residual(DType dtype, Bytes values, ResidualSpan residual) = 0;
};

// Floats in a GradientMemory.
class FloatBuffer {
 public:
  FloatBuffer() = default;  // of none
  // Zeros.
  FloatBuffer(GradientMemory& memory, size_t count)
      : memory_(&memory), data_(memory.zeros(static_cast<int64_t>(count))), count_(count) {}

  float* data() const { return data_.get(); }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  GradientMemory* memory() const { return memory_; }
  // In what kernels of no dtype in particular take.
  Bytes bytes() const { return std::as_writable_bytes(std::span(data(), count_)); }

  std::vector<float> on_host() const {
    std::vector<float> out(count_);
    if (count_ > 0) memory_->read(data(), out);
    return out;
  }
  // As many.
  void assign(std::span<const float> values) {
    check(values.size() == count_, "floats for a buffer of another size");
    if (count_ > 0) memory_->write(values, data());
  }

 private:
  GradientMemory* memory_ = nullptr;
  std::shared_ptr<float> data_;
  size_t count_ = 0;
};

// The host's. Any thread.
GradientMemory& host_memory();

}  // namespace ringdist
