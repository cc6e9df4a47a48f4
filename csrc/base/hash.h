// FNV-1a, 64 bits, over what is added: equal on all machines. Not for secrets.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringdist {

class Hash {
 public:
  Hash& add(uint8_t byte) {
    value_ = (value_ ^ byte) * 0x100000001b3;
    return *this;
  }
  // The text, and where it ends.
  Hash& add(std::string_view text) {
    for (char c : text) add(static_cast<uint8_t>(c));
    return add(uint8_t{0});
  }
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
