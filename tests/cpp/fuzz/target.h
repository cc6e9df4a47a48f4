// Fuzz targets: functions that give any bytes to code that reads bytes of other processes.
// libFuzzer calls them (`make fuzz`, tests/fuzz/main.cc), and replay_test.cc repeats their seeds
// and corpora.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/check.h"
#include "base/error.h"

namespace ringdist::test {

using FuzzSeeds = std::vector<std::vector<std::byte>>;

struct FuzzTarget {
  std::string_view name;     // also the name of its folder in tests/fuzz/corpus
  std::string_view sources;  // regular expression for the files of its coverage
  // Ends the process if an invariant is violated. Accesses outside of buffers are left for a
  // sanitizer to detect. Returns false for an input that is not worth keeping.
  bool (*run)(ConstBytes input);
  // Returns valid inputs, as the encoders make them.
  FuzzSeeds (*seeds)();
};

extern const FuzzTarget kCodecFuzz, kFramesFuzz, kControlFuzz, kMembershipFuzz, kGroupFuzz,
    kRankInfoFuzz, kShmFuzz, kTcpFuzz, kNegotiationFuzz, kStoreFuzz;
inline constexpr const FuzzTarget* kFuzzTargets[] = {
    &kCodecFuzz,    &kFramesFuzz, &kControlFuzz, &kMembershipFuzz,  &kGroupFuzz,
    &kRankInfoFuzz, &kShmFuzz,    &kTcpFuzz,     &kNegotiationFuzz, &kStoreFuzz};

// Splits an input into numbers and pieces. Past the end it returns zeros and empty pieces.
class FuzzInput {
 public:
  explicit FuzzInput(ConstBytes in) : in_(in) {}

  bool empty() const { return in_.empty(); }
  uint8_t byte() { return take(1).empty() ? 0 : last_; }
  // Returns a piece that put_piece() has written. The memory has exactly its size, so that
  // AddressSanitizer detects accesses past its end.
  std::vector<std::byte> piece() {
    const size_t low = byte();
    return copy(low | static_cast<size_t>(byte()) << 8);
  }
  std::vector<std::byte> rest() { return copy(in_.size()); }

 private:
  ConstBytes take(size_t most) {
    const ConstBytes out = in_.first(std::min(most, in_.size()));
    in_ = in_.subspan(out.size());
    if (!out.empty()) last_ = std::to_integer<uint8_t>(out.back());
    return out;
  }
  std::vector<std::byte> copy(size_t most) {
    const ConstBytes out = take(most);
    return {out.begin(), out.end()};
  }

  ConstBytes in_;
  uint8_t last_ = 0;
};

// Writes a seed in the format of FuzzInput.
class FuzzSeed {
 public:
  FuzzSeed& byte(uint8_t value) {
    bytes_.push_back(std::byte{value});
    return *this;
  }
  FuzzSeed& piece(ConstBytes bytes) {
    byte(static_cast<uint8_t>(bytes.size())).byte(static_cast<uint8_t>(bytes.size() >> 8));
    return rest(bytes);
  }
  FuzzSeed& rest(ConstBytes bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Runs an input that is a list of steps, each a number below `steps` and its arguments.
template <typename World>
bool run_steps(ConstBytes bytes, uint8_t steps) {
  FuzzInput input(bytes);
  World world;
  while (!input.empty()) world.step(input.byte() % steps, input);
  world.end();
  return true;
}

template <typename T>
bool is_there(const std::optional<T>& value) {
  return value.has_value();
}
template <typename T>
bool is_there(const Result<T>& value) {
  return value.ok();
}

// Checks that a decoded value survives its encoding. `decode` returns an optional or a Result. The
// first encoding is compared with the second, because a decoder may ignore bytes. Long texts and
// line breaks are left out, because they change when they are made printable.
template <typename Decode, typename Encode>
void check_round_trip(ConstBytes bytes, const Decode& decode, const Encode& encode) {
  constexpr size_t kMostText = 4096;
  const auto value = decode(bytes);
  if (!is_there(value)) return;
  const auto once = encode(value.value());
  const auto again = decode(once);
  check(is_there(again), "an encoding cannot be decoded");
  if (once.size() > kMostText || std::ranges::count(once, std::byte{'\n'}) > 0) return;
  check(encode(again.value()) == once, "a decoded value has another encoding");
}

}  // namespace ringdist::test
