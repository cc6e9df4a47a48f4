// Floats in a GradientMemory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/buffers.h"
#include "base/check.h"
#include "codec/gradient_memory.h"

namespace ringdist {

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

}  // namespace ringdist
