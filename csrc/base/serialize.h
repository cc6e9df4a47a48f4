// Flat little-endian encoding for what goes over the store and the control plane. Reading past the
// end is remembered, not undefined: check ok() once at the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/buffers.h"

namespace ringdist {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

class Writer {
 public:
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  Writer& put(const T& value) {
    const size_t at = out_.size();
    out_.resize(at + sizeof(T));
    std::memcpy(out_.data() + at, &value, sizeof(T));
    return *this;
  }
  Writer& put_bytes(ConstBytes bytes) {
    put(static_cast<uint32_t>(bytes.size()));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Writer& put_string(std::string_view text) {
    return put_bytes({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

class Reader {
 public:
  explicit Reader(ConstBytes in) : in_(in) {}

  template <typename T>
    requires std::is_trivially_copyable_v<T> && (!std::is_same_v<T, bool>)
  T get() {
    T value{};
    if (ConstBytes bytes = next(sizeof(T)); bytes.size() == sizeof(T))
      std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  // Any byte but 0 is true: one from the wire may have any value, which a bool may not.
  bool get_bool() { return get<uint8_t>() != 0; }
  std::vector<std::byte> get_bytes() {
    ConstBytes bytes = next(get<uint32_t>());
    return {bytes.begin(), bytes.end()};
  }
  std::string get_string() {
    ConstBytes bytes = next(get<uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool ok() const { return ok_; }
  // And nothing is left.
  bool ended() const { return ok_ && in_.empty(); }

 private:
  ConstBytes next(size_t n) {
    if (n > in_.size()) {
      ok_ = false;
      return {};
    }
    ConstBytes out = in_.first(n);
    in_ = in_.subspan(n);
    return out;
  }

  ConstBytes in_;
  bool ok_ = true;
};

}  // namespace ringdist
