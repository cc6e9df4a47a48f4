// What a message brought, where it lies: in memory that its sender may take back while it is being
// read. So whoever has read it - copied it, reduced it - asks whether it held before anything
// follows from that. A sender marks it first and alters it then.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>

#include "base/buffers.h"

namespace ringdist {

class Payload {
 public:
  Payload() = default;
  // Of memory that stays as it is.
  template <typename Span>
    requires std::convertible_to<const Span&, ConstBytes>
  Payload(const Span& bytes) : bytes_(bytes) {}
  // Of which nothing is left but that it came.
  static Payload revoked() {
    static constexpr std::atomic<uint32_t> kWord = 1;
    return {ConstBytes(), kWord, 1};
  }
  // Taken back once the word has the bit.
  Payload(ConstBytes bytes, const std::atomic<uint32_t>& word, uint32_t bit)
      : bytes_(bytes), word_(&word), bit_(bit) {}

  ConstBytes bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  // What was read of it until now is what was sent.
  bool still_valid() const {
    if (!word_) return true;
    std::atomic_thread_fence(std::memory_order_acquire);
    return (word_->load(std::memory_order_relaxed) & bit_) == 0;
  }

 private:
  ConstBytes bytes_;
  const std::atomic<uint32_t>* word_ = nullptr;
  uint32_t bit_ = 0;
};

// What a sender calls one of its sends: it comes back when the send has ended.
using SendId = uint64_t;
inline constexpr SendId kNoSendId = 0;  // nobody wants to know

}  // namespace ringdist
