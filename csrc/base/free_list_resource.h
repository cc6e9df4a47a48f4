// Memory that is given back stays for the next who asks for as much. Not the standard library's
// pool: that of GCC 12 does not survive an allocation that fails (its next one reads through a null
// pointer). One thread at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <utility>

namespace ringdist {

class FreeListResource final : public std::pmr::memory_resource {
 public:
  FreeListResource() = default;
  ~FreeListResource() override {
    for (Free*& list : free_)
      while (list != nullptr) ::operator delete(pop(list));
  }
  FreeListResource(const FreeListResource&) = delete;
  FreeListResource& operator=(const FreeListResource&) = delete;

 private:
  static constexpr size_t kLeast = 32;
  static constexpr size_t kMost = size_t{64} << 10;  // what is larger goes back at once
  static constexpr size_t kClasses = std::countr_zero(kMost) + 1;
#ifdef RINGDIST_SANITIZED
  static constexpr bool kKeeps = false;  // who uses what was given back is found out
#else
  static constexpr bool kKeeps = true;
#endif

  struct Free {
    Free* next;
  };

  static size_t round_up(size_t bytes) { return std::bit_ceil(bytes < kLeast ? kLeast : bytes); }
  static bool is_kept(size_t bytes, size_t alignment) {
    return kKeeps && bytes <= kMost && alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;
  }
  Free*& list_for(size_t bytes) { return free_[std::countr_zero(round_up(bytes))]; }
  static void* pop(Free*& list) {
    void* const out = list;
    list = list->next;
    return out;
  }

  void* do_allocate(size_t bytes, size_t alignment) override {
    if (!is_kept(bytes, alignment)) return ::operator new(bytes, std::align_val_t(alignment));
    Free*& list = list_for(bytes);
    return list != nullptr ? pop(list) : ::operator new(round_up(bytes));
  }
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
    if (!is_kept(bytes, alignment)) return ::operator delete(memory, std::align_val_t(alignment));
    Free*& list = list_for(bytes);
    list = new (memory) Free{list};
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::array<Free*, kClasses> free_{};  // by log2 of their size
};

// An object that lives in memory of a std::pmr resource, and gives it back at its end.
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
