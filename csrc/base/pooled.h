// An object that lives in memory of a std::pmr resource, and gives it back at its end.
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <utility>

namespace ringdist {

class PoolDelete {
 public:
  PoolDelete() = default;
  PoolDelete(std::pmr::memory_resource& memory, size_t bytes, size_t alignment)
      : memory_(&memory), bytes_(bytes), alignment_(alignment) {}

  template <typename T>
  void operator()(T* object) const {
    object->~T();
    memory_->deallocate(object, bytes_, alignment_);
  }

 private:
  std::pmr::memory_resource* memory_ = nullptr;
  size_t bytes_ = 0;
  size_t alignment_ = 0;
};

// May point to a base of what was made, if that is its first and has a virtual destructor.
template <typename T>
using Pooled = std::unique_ptr<T, PoolDelete>;

template <typename T, typename... Args>
Pooled<T> make_pooled(std::pmr::memory_resource& memory, Args&&... args) {
  void* const place = memory.allocate(sizeof(T), alignof(T));
  try {
    T* const made = new (place) T(std::forward<Args>(args)...);
    return {made, PoolDelete(memory, sizeof(T), alignof(T))};
  } catch (...) {
    memory.deallocate(place, sizeof(T), alignof(T));
    throw;
  }
}

}  // namespace ringdist
