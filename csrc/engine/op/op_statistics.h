// Statistics that are always on: the ops of a group by kind, codec and size, and the data exchanged
// with each peer. They go into snapshots on request (`ringdist status --statistics`).
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/op/op.h"

namespace ringdist {

// Counts durations by powers of two. Bucket i has those up to 2^i * 1024 ns that no bucket before
// it has. The last bucket has all others.
class DurationHistogram {
 public:
  static constexpr int kBuckets = 28;  // the last but one ends at 69 s

  // A negative duration, of less than an iteration of the lane, goes to the first bucket.
  void add(Duration duration) noexcept;
  void merge(const DurationHistogram& other);
  // Returns an object with `sum` in seconds, and `counts` by bucket up to the last that is not 0.
  std::string json() const;

 private:
  std::array<uint64_t, kBuckets> counts_{};
  Duration sum_{};
};

// Statistics of the ops that have ended. There is a row for each kind of op, codec, and power of
// two that the bytes of its input or output, whichever is larger, do not exceed.
class OpStatistics {
 public:
  // Counts an op that ends. Does nothing if there is no memory for a new row.
  void add(const Op& op, TimePoint now, bool failed) noexcept;
  // Adds all rows of `other`, as far as there is memory.
  void merge(const OpStatistics& other) noexcept;
  // Returns the number of ops, with those that failed.
  uint64_t count() const;
  // Returns the rows as a JSON array, in the order of kind, codec and size. A row has operation,
  // codec ("" for none), size, count, failed, bytes, and the histograms duration and wait. All but
  // count and failed are of the ops that succeeded.
  std::string json() const;

 private:
  struct Row {
    uint32_t key = 0;  // kind, direction, codec and size; see key_of()
    uint64_t count = 0;
    uint64_t failed = 0;
    uint64_t bytes = 0;
    DurationHistogram duration;
    DurationHistogram wait;  // Op::longest_wait
  };

  // Returns the row with that key. May throw std::bad_alloc.
  Row& row(uint32_t key);

  std::vector<Row> rows_;  // in the order of their first ops
  size_t last_ = 0;        // index of the row that was used last
};

// Data exchanged with one process over one transport, without headers.
struct PeerTraffic {
  PeerTraffic(std::string where, bool on_other_host)
      : where(std::move(where)), on_other_host(on_other_host) {}

  const std::string where;  // the process, for a human
  // It is on another host, so that the time of sends is measured. Inside a host they end when the
  // data are in shared memory.
  const bool on_other_host;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t sends_in_flight = 0;
  Duration sending{};       // time with sends in flight, without the present time
  TimePoint sending_since;  // valid while sends are in flight

  void received(size_t bytes) {
    bytes_received += bytes;
    ++messages_received;
  }
  void sent(size_t bytes) {
    bytes_sent += bytes;
    ++messages_sent;
  }
  // A send is in flight from begin_send() to end_send().
  void begin_send(TimePoint now) {
    if (sends_in_flight++ == 0) sending_since = now;
  }
  void end_send(TimePoint now) {
    if (--sends_in_flight == 0) sending += now - sending_since;
  }
  void merge(const PeerTraffic& other);
};

// The traffic of all peers. Rows that no group uses are merged into one, "others", when there are
// too many, and so is what has no row of its own.
class PeerTrafficTable {
 public:
  static constexpr size_t kMost = 64;

  // Returns the row of a process and a transport, which the caller keeps while it uses it. May
  // throw std::bad_alloc.
  std::shared_ptr<PeerTraffic> row(uint64_t context_id, std::string_view transport,
                                   const std::string& where, bool on_other_host);
  // Returns the rows as a JSON array. Each has context and transport ("" for the others), where,
  // bytes_sent, bytes_received, messages_sent, messages_received, and sending in seconds.
  std::string json(TimePoint now) const;

 private:
  using Key = std::pair<uint64_t, std::string>;

  std::map<Key, std::shared_ptr<PeerTraffic>> rows_;
  std::shared_ptr<PeerTraffic> others_;  // null while there is none
};

}  // namespace ringdist
