// Replaces all forms of operator new and delete for support/failing_allocation.h. All forms are
// needed, because a sanitizer supplies the missing ones and these would not match. Exactly one
// file of a program includes this header.
#pragma once

#include <cstdlib>
#include <new>

#include "support/failing_allocation.h"

namespace ringdist::test {

[[gnu::noinline]] inline void* take_memory(std::size_t size, std::size_t alignment) noexcept {
  if (allocation_fails()) return nullptr;
  if (size == 0) size = 1;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

inline void* take_memory_or_throw(std::size_t size, std::size_t alignment) {
  if (void* memory = take_memory(size, alignment)) return memory;
  throw std::bad_alloc();
}

[[gnu::noinline]] inline void give_memory(void* memory) noexcept { std::free(memory); }

}  // namespace ringdist::test

namespace test = ringdist::test;
using Align = std::align_val_t;

void* operator new(std::size_t size) { return test::take_memory_or_throw(size, 0); }
void* operator new[](std::size_t size) { return test::take_memory_or_throw(size, 0); }
void* operator new(std::size_t size, Align align) {
  return test::take_memory_or_throw(size, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t size, Align align) {
  return test::take_memory_or_throw(size, static_cast<std::size_t>(align));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return test::take_memory(size, 0);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return test::take_memory(size, 0);
}
void* operator new(std::size_t size, Align align, const std::nothrow_t&) noexcept {
  return test::take_memory(size, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t size, Align align, const std::nothrow_t&) noexcept {
  return test::take_memory(size, static_cast<std::size_t>(align));
}

void operator delete(void* memory) noexcept { test::give_memory(memory); }
void operator delete[](void* memory) noexcept { test::give_memory(memory); }
void operator delete(void* memory, std::size_t) noexcept { test::give_memory(memory); }
void operator delete[](void* memory, std::size_t) noexcept { test::give_memory(memory); }
void operator delete(void* memory, Align) noexcept { test::give_memory(memory); }
void operator delete[](void* memory, Align) noexcept { test::give_memory(memory); }
void operator delete(void* memory, std::size_t, Align) noexcept { test::give_memory(memory); }
void operator delete[](void* memory, std::size_t, Align) noexcept { test::give_memory(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { test::give_memory(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { test::give_memory(memory); }
void operator delete(void* memory, Align, const std::nothrow_t&) noexcept {
  test::give_memory(memory);
}
void operator delete[](void* memory, Align, const std::nothrow_t&) noexcept {
  test::give_memory(memory);
}
