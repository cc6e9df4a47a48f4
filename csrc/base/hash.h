// 64-bit FNV-1a hash. The result is the same on all machines, so ranks can compare it. It is not
// for secrets.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringdist {

// Incremental hash. Each add() returns *this, so that calls can be chained. One thread per object.
class Hash {
 public:
  Hash& add(uint8_t byte) {
    value_ = (value_ ^ byte) * 0x100000001b3;
    return *this;
  }
  // Adds the characters and a terminating zero, so that "ab", "c" and "a", "bc" give different
  // hashes.
  Hash& add(std::string_view text) {
    for (char c : text) add(static_cast<uint8_t>(c));
    return add(uint8_t{0});
  }
  // Adds eight bytes, the lowest first.
  Hash& add(int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add(static_cast<uint8_t>(number >> shift));
    return *this;
  }
  Hash& add(uint64_t number) { return add(static_cast<int64_t>(number)); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace ringdist
