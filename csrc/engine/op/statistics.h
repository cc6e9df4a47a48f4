// Counters of a Context since it was created. The holder of the progress lock writes them; any
// thread may read them.
// Counters are independent: a reader may see one updated before another.
#pragma once

#include <atomic>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace ringdist {

// Counters by purpose. kCounters lists them with the names that users see.
struct Statistics {
  // Payload without headers, and data messages. Those that are sent include parts of service
  // messages; those that are received do not.
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> messages_sent{0};
  std::atomic<uint64_t> messages_received{0};
  std::atomic<uint64_t> control_messages{0};  // requests, grants and credits
  // Data of a started op that arrived before its step could use it, and was copied. Messages that
  // arrive before their op has been started are not counted.
  std::atomic<uint64_t> messages_kept{0};
  std::atomic<uint64_t> ops_completed{0};
  std::atomic<uint64_t> ops_failed{0};

  // Adds n to a counter. Only one thread writes at a time (the progress lock), so no locked
  // instruction is needed.
  static void add(std::atomic<uint64_t>& counter, uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
};

// A counter and the name that users see.
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
