// Memory copies that can bypass the caches, for data that no near core will read soon.
#pragma once

#include <cstddef>

namespace ringdist {

// Destination of the stores of a copy.
enum class StoreMode : unsigned char {
  kCached,     // into the caches, as far as they reach
  kStreaming,  // into memory: avoids reading the old contents and evicting other data from the
               // caches
};

// Copies like std::memcpy(), so the spans must not overlap and need no alignment. Parts of a cache
// line are always copied through the caches. After it returns, a release store publishes the bytes,
// whichever mode was used. Any thread.
void copy(std::byte* to, const std::byte* from, size_t bytes, StoreMode stores);

}  // namespace ringdist
