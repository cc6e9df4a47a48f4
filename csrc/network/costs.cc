#include "network/costs.h"

#include <cmath>

namespace ringdist {
namespace {

// What a core copies into shared memory, and what it gets through the kernel's sockets.
constexpr double kMemoryCopied = 10e9;
constexpr double kMemoryLine = 40e9;  // all cores of a host together
constexpr double kSocketCopied = 3e9;
// Engine and transport, a message at one end.
constexpr auto kMemoryMessage = std::chrono::nanoseconds(300);
constexpr auto kSocketMessage = std::chrono::microseconds(3);
constexpr auto kMemoryLatency = std::chrono::nanoseconds(200);
constexpr int64_t kHeader = 72;
constexpr double kTcpShare = 0.957;  // of an Ethernet line's bits that are TCP's payload

}  // namespace

Duration time_of(int64_t bytes, double bytes_per_second) {
  if (bytes_per_second <= 0) return Duration(0);
  return Duration(std::llround(std::ceil(static_cast<double>(bytes) * 1e9 / bytes_per_second)));
}

Duration end_time(const LinkCosts& costs, int64_t bytes) {
  return costs.per_message + time_of(bytes, costs.copied_per_second);
}

Duration line_time(const LinkCosts& costs, int64_t bytes) {
  return time_of(bytes + costs.framing, costs.bytes_per_second);
}

NetworkCosts usual_costs(double bits_per_second, Duration latency) {
  return {.inside = {.latency = kMemoryLatency,
                     .bytes_per_second = kMemoryLine,
                     .copied_per_second = kMemoryCopied,
                     .per_message = kMemoryMessage,
                     .framing = kHeader},
          .between = {.latency = latency,
                      .bytes_per_second = bits_per_second / 8 * kTcpShare,
                      .copied_per_second = kSocketCopied,
                      .per_message = kSocketMessage,
                      .framing = kHeader}};
}

}  // namespace ringdist
