#include "base/network_costs.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace ringdist {
namespace {

// Rates at which a core copies into shared memory and through the kernel's sockets. The rate,
// message time and latency of memory were fitted to collectives of 2 and 4 ranks on two cores. The
// fit reproduces where which algorithm is faster, and how long they take
// (docs/explanation/algorithms.md).
constexpr double kMemoryCopied = 20e9;
constexpr double kMemoryLine = 200e9;  // all cores of a host together
constexpr double kSocketCopied = 3e9;
// Time that engine and transport spend on a message at one end.
constexpr auto kMemoryMessage = std::chrono::nanoseconds(700);
constexpr auto kSocketMessage = std::chrono::microseconds(3);
constexpr auto kMemoryLatency = std::chrono::nanoseconds(700);
constexpr int64_t kTcpFraming = 72;
constexpr double kTcpShare = 0.957;  // fraction of an Ethernet line's bits that carries TCP payload

// Returns the shortest text that parses to the same number, so different constants have different
// texts.
std::string format(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

Duration nanoseconds(double value) { return Duration(std::llround(value)); }

}  // namespace

std::span<const LinkConstant> link_constants() {
  static constexpr std::array kTable{
      LinkConstant{"latency_ns",
                   [](const LinkCosts& link) { return static_cast<double>(link.latency.count()); },
                   [](LinkCosts& link, double value) { link.latency = nanoseconds(value); }},
      LinkConstant{"bytes_per_second", [](const LinkCosts& link) { return link.bytes_per_second; },
                   [](LinkCosts& link, double value) { link.bytes_per_second = value; }},
      LinkConstant{"copied_per_second",
                   [](const LinkCosts& link) { return link.copied_per_second; },
                   [](LinkCosts& link, double value) { link.copied_per_second = value; }},
      LinkConstant{
          "per_message_ns",
          [](const LinkCosts& link) { return static_cast<double>(link.per_message.count()); },
          [](LinkCosts& link, double value) { link.per_message = nanoseconds(value); }},
      LinkConstant{"framing_bytes",
                   [](const LinkCosts& link) { return static_cast<double>(link.framing); },
                   [](LinkCosts& link, double value) { link.framing = std::llround(value); }},
  };
  return kTable;
}

std::string describe_difference(const NetworkCosts& ours, const NetworkCosts& theirs) {
  for (const auto& [name, link] :
       {std::pair("inside.", &NetworkCosts::inside), std::pair("between.", &NetworkCosts::between)})
    for (const LinkConstant& one : link_constants())
      if (one.get(ours.*link) != one.get(theirs.*link))
        return name + std::string(one.name) + " is " + format(one.get(theirs.*link)) + ", not " +
               format(one.get(ours.*link));
  return "";
}

std::string GroupCosts::describe() const {
  return file.empty() ? "the built-in costs" : "the costs of '" + file + "'";
}

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

NetworkCosts default_costs(double bits_per_second, Duration latency) {
  return {.inside = {.latency = kMemoryLatency,
                     .bytes_per_second = kMemoryLine,
                     .copied_per_second = kMemoryCopied,
                     .per_message = kMemoryMessage,
                     .framing = kTcpFraming},
          .between = {.latency = latency,
                      .bytes_per_second = bits_per_second / 8 * kTcpShare,
                      .copied_per_second = kSocketCopied,
                      .per_message = kSocketMessage,
                      .framing = kTcpFraming}};
}

}  // namespace ringdist
