// Copies of memory whose reader is not near: around the caches.
#pragma once

#include <cstddef>

namespace ringdist {

// Where what is written stays.
enum class StoreMode : unsigned char {
  kCached,     // in the caches, as far as they reach
  kStreaming,  // in memory: what was there is not read first, and nothing else leaves the caches
};

// Like std::memcpy(). The bytes are visible to whoever is told of them afterwards, however they
// were stored. Any thread.
void copy(std::byte* to, const std::byte* from, size_t bytes, StoreMode stores);

}  // namespace ringdist
