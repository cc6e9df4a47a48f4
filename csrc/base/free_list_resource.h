// Memory resource with free lists: memory that is deallocated is kept for the next allocation of
// the same size class. It replaces the pool of the standard library. The pool of GCC 12 is broken
// by a failed allocation: the next allocation reads through a null pointer.
//
// One thread at a time. The destructor frees the lists; memory still in use must be returned before
// that.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <utility>

namespace ringdist {

// std::pmr resource that rounds sizes up to powers of two and keeps freed blocks of at most 64 KiB.
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
  static constexpr size_t kLeast = 32;               // bytes; the smallest size class
  static constexpr size_t kMost = size_t{64} << 10;  // bytes; larger blocks are freed at once
  static constexpr size_t kClasses = std::countr_zero(kMost) + 1;
#ifdef RINGDIST_SANITIZED
  static constexpr bool kKeeps = false;  // sanitizers then find uses of freed memory
#else
  static constexpr bool kKeeps = true;
#endif

  // Header of a free block. It lies in the block itself.
  struct Free {
    Free* next;
  };

  static size_t round_up(size_t bytes) { return std::bit_ceil(bytes < kLeast ? kLeast : bytes); }
  // Returns true if blocks of this size and alignment go to the free lists.
  static bool is_kept(size_t bytes, size_t alignment) {
    return kKeeps && bytes <= kMost && alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__;
  }
  // Returns the free list of the size class of `bytes`, which is_kept() must accept.
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

  std::array<Free*, kClasses> free_{};  // indexed by log2 of the block size
};

// Deleter of an object that lives in memory of a std::pmr resource. Destroys the object and
// deallocates its memory. The resource must outlive the object.
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

// Owning pointer to an object in pooled memory. It may point to a base class of the object. The
// base must then be the first one and have a virtual destructor, because the pointer's value is
// deallocated.
template <typename T>
using Pooled = std::unique_ptr<T, PoolDelete>;

// Constructs a T in memory of the resource. If the constructor throws, the memory is deallocated.
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
