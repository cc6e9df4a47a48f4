// Counters of a Context, since it began. Written by the lane, read by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace ringdist {

struct Statistics {
  std::atomic<uint64_t> bytes_sent{0};  // payload, without headers
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> messages_sent{0};  // data messages
  std::atomic<uint64_t> messages_received{0};
  std::atomic<uint64_t> control_messages{0};  // requests, grants and credits
  std::atomic<uint64_t> messages_kept{0};     // arrived before they could be used: copied
  std::atomic<uint64_t> ops_completed{0};
  std::atomic<uint64_t> ops_failed{0};

  // One writer at a time: no locked instruction needed.
  static void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

// A counter by the name that users see.
struct CounterRow {
  std::string_view name;
  std::atomic<uint64_t> Statistics::* counter;
};

inline constexpr CounterRow kCounters[] = {
    {"bytes_sent", &Statistics::bytes_sent},
    {"bytes_received", &Statistics::bytes_received},
    {"messages_sent", &Statistics::messages_sent},
    {"messages_received", &Statistics::messages_received},
    {"control_messages", &Statistics::control_messages},
    {"messages_kept", &Statistics::messages_kept},
    {"ops_completed", &Statistics::ops_completed},
    {"ops_failed", &Statistics::ops_failed},
};
static_assert(std::size(kCounters) * sizeof(std::atomic<uint64_t>) == sizeof(Statistics),
              "a counter without a row");

}  // namespace ringdist
