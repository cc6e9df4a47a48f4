// What ranks send each other, read from the bytes on the wire alone: no rearrangement of the engine
// can change what it says. Gets its messages from the tap of a `local` network. Thread-safe.
//
// Two texts:
//  - data_lines(): what one op moves over each edge. The same in every run, whatever the timing:
//    data messages in the order of their segments, without what depends on the group and on the
//    moment (nonce, number of a collective, early or granted, credit).
//  - flow_lines(): every message of each ordered pair in its order, those of flow control included,
//    without their data. The same only where nothing is left to chance: see Stepper.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/thread_annotations.h"

namespace ringdist {

struct TracedMessage {
  int type = 0;
  bool early = false;
  int source = 0;
  int destination = 0;
  uint64_t nonce = 0;
  uint64_t op = 0;
  uint32_t edge = 0;
  uint32_t segment = 0;
  uint64_t credit = 0;
  size_t payload_bytes = 0;
  uint64_t header_hash = 0;  // without nonce, number of a collective, early, credit
  uint64_t payload_hash = 0;
};

class Trace {
 public:
  void add(ConstBytes header, ConstBytes payload);
  // What came since the last call.
  std::vector<TracedMessage> take();
  // Whether each of `size` ranks has sent something since the last take().
  bool all_have_sent(int size) const;

 private:
  mutable std::mutex mutex_;
  std::vector<TracedMessage> messages_ RINGDIST_GUARDED_BY(mutex_);
};

// Lines without their ends. Collectives are numbered from `first_op` on.
std::vector<std::string> data_lines(const std::vector<TracedMessage>& messages, uint64_t first_op);
std::vector<std::string> flow_lines(const std::vector<TracedMessage>& messages, uint64_t first_op);

uint64_t hash_of(ConstBytes bytes);
std::string hex(uint64_t hash);  // "01234567": folded, for people

}  // namespace ringdist
