// Payload of a received message, in place. Its memory may belong to the sender, which can revoke
// the payload while the receiver reads it. So after it has read (copied, reduced) the payload, the
// receiver calls still_valid() before it uses the result. A sender that revokes sets the bit first
// and changes the memory afterwards (compare a seqlock).
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>

#include "base/buffers.h"

namespace ringdist {

// View of a message's bytes, with the bit that revokes it, if there is one. It is valid during the
// delivering call.
class Payload {
 public:
  Payload() = default;
  // Makes a payload in memory that does not change. Nothing can revoke it.
  template <typename Span>
    requires std::convertible_to<const Span&, ConstBytes>
  Payload(const Span& bytes) : bytes_(bytes) {}  // NOLINT(google-explicit-constructor)
  // Makes a payload that is already revoked: its bytes are gone, only the arrival of the message is
  // left.
  static Payload revoked() {
    static constexpr std::atomic<uint32_t> kWord = 1;
    return {ConstBytes(), kWord, 1};
  }
  // Makes a payload that is revoked once `word` has `bit`. The word must outlive the payload.
  Payload(ConstBytes bytes, const std::atomic<uint32_t>& word, uint32_t bit)
      : bytes_(bytes), word_(&word), bit_(bit) {}

  ConstBytes bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  // Returns true if all bytes that were read before this call are those that were sent. Reads are
  // ordered before the check by an acquire fence.
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

// Number by which a sender identifies one of its sends. The transport passes it back when the send
// has ended.
using SendId = uint64_t;
inline constexpr SendId kNoSendId = 0;  // no completion is reported

}  // namespace ringdist
