// Memory that is given back stays for the next who asks for as much. Not the standard library's
// pool: that of GCC 12 does not survive an allocation that fails (its next one reads through a null
// pointer). One thread at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory_resource>
#include <new>

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

}  // namespace ringdist
