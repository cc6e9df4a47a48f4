// Records the messages between ranks, decoded from the bytes on the wire alone. So a change inside
// the engine cannot change the trace unless it changes the traffic. It gets the messages from the
// tap of a `local` network. Thread-safe.
//
// data_lines() describes the data that an op moves over each edge. The lines are the same in every
// run, whatever the timing. Data messages are in segment order. The lines leave out everything
// that depends on the group or on timing: nonce, number of a collective, eager or granted, and
// credit.
//
// flow_lines() describes every message of each ordered pair in order, with those of flow control,
// but without their data. The lines are the same only in a deterministic run; see Stepper.
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
  uint64_t header_hash =
      0;  // hash of the header without nonce, number of a collective, eager mark and credit
  uint64_t payload_hash = 0;
};

class Trace {
 public:
  void add(ConstBytes header, ConstBytes payload);
  // Returns the messages since the last call.
  std::vector<TracedMessage> take();
  // True if each of `size` ranks has sent a message since the last take().
  bool all_have_sent(int size) const;

 private:
  mutable std::mutex mutex_;
  std::vector<TracedMessage> messages_ RINGDIST_GUARDED_BY(mutex_);
};

// Format the messages as lines without line ends. Collectives are numbered from `first_op` on.
std::vector<std::string> data_lines(const std::vector<TracedMessage>& messages, uint64_t first_op);
std::vector<std::string> flow_lines(const std::vector<TracedMessage>& messages, uint64_t first_op);

uint64_t hash_of(ConstBytes bytes);
std::string hex(uint64_t hash);  // 8 digits, folded to 32 bits for readability

}  // namespace ringdist
