// Flat little-endian encoding of data for the store and the control plane. Plain values in
// sequence, without tags: reader and writer must agree on the order. One thread per object.
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
#include "base/describe.h"

namespace ringdist {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// Appends values to a byte vector. Each put returns *this, so that calls can be chained.
class Writer {
 public:
  // Appends the bytes of `value` as they lie in memory, so its type must have no padding.
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  Writer& put(const T& value) {
    const size_t at = out_.size();
    out_.resize(at + sizeof(T));
    std::memcpy(out_.data() + at, &value, sizeof(T));
    return *this;
  }
  // Appends the size as a uint32_t, then the bytes. They must be fewer than 4 GiB.
  Writer& put_bytes(ConstBytes bytes) {
    put(static_cast<uint32_t>(bytes.size()));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Writer& put_string(std::string_view text) {
    return put_bytes({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  }
  // Returns the bytes; the writer is empty afterwards.
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

// Reads values in the order in which a Writer put them. A read past the end returns a default value
// and clears ok(). So any input is safe, and one check of ok() at the end is enough. A Reader does
// not own the bytes.
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
  // Reads a bool. Any byte but 0 is true: a byte from the network may have any value, and a bool
  // may not.
  bool get_bool() { return get<uint8_t>() != 0; }
  // These two read the output of put_bytes() and put_string(). If fewer bytes are left than the
  // size demands, they return nothing and clear ok().
  std::vector<std::byte> get_bytes() {
    ConstBytes bytes = next(get<uint32_t>());
    return {bytes.begin(), bytes.end()};
  }
  std::string get_string() {
    ConstBytes bytes = next(get<uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Like get_string(), for a text that is shown to a person; see printable().
  std::string get_text(size_t most) { return printable(get_string(), most); }
  // Returns true if no read went past the end.
  bool ok() const { return ok_; }
  // Returns true if ok() and no bytes are left.
  bool ended() const { return ok_ && in_.empty(); }

 private:
  // Returns the next n bytes and skips them, or nothing if there are fewer.
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
