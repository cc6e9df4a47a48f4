#include "torch/shared_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <mutex>

#include "os/shared_block_registry.h"
#include "torch/base/errors.h"

namespace ringdist {
namespace {

class SharedAllocator final : public c10::Allocator {
 public:
  explicit SharedAllocator(c10::Allocator* usual) : usual_(usual) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLeastShared || !SharedBlockRegistry::in_region()) return usual_->allocate(bytes);
    std::byte* const data = value_of(SharedBlockRegistry::of_process().allocate(bytes));
    // The process has as many shared blocks as it may have.
    if (data == nullptr) return usual_->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &free, c10::Device(c10::DeviceType::CPU)};
  }
  // The usual allocator may serve a block, too, so the deleter finds out where it is from.
  c10::DeleterFnPtr raw_deleter() const override {
    return usual_->raw_deleter() != nullptr ? &free_either : nullptr;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    usual_->copy_data(to, from, bytes);
  }

 private:
  static void free(void* data);
  static void free_either(void* data);

  c10::Allocator* const usual_;
};

// Never destroyed, because tensors may outlive main().
SharedAllocator& allocator() {
  static auto* the_allocator = new SharedAllocator(c10::GetAllocator(c10::DeviceType::CPU));
  return *the_allocator;
}

void SharedAllocator::free(void* data) {
  c10::profiledCPUMemoryReporter().Delete(data);
  (void)SharedBlockRegistry::of_process().free(static_cast<std::byte*>(data));
}

// Frees memory of raw_allocate(), which returns only an address.
void SharedAllocator::free_either(void* data) {
  if (!SharedBlockRegistry::of_process().free(static_cast<std::byte*>(data)))
    return allocator().usual_->raw_deleter()(data);
  c10::profiledCPUMemoryReporter().Delete(data);
}

}  // namespace

void begin_sharing() {
  static std::once_flag once;
  std::call_once(once, [] {
    constexpr uint8_t kAboveAll = UINT8_MAX;
    c10::SetAllocator(c10::DeviceType::CPU, &allocator(), kAboveAll);
  });
  SharedBlockRegistry::of_process().enter_region();
}

void end_sharing() { SharedBlockRegistry::of_process().leave_region(); }

}  // namespace ringdist
