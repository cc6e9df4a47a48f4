#include "bindings/costs.h"

namespace ringdist {
namespace {

std::map<std::string, double> numbers(const LinkCosts& link) {
  return {{"latency_ns", static_cast<double>(link.latency.count())},
          {"bytes_per_second", link.bytes_per_second},
          {"copied_per_second", link.copied_per_second},
          {"per_message_ns", static_cast<double>(link.per_message.count())},
          {"framing_bytes", static_cast<double>(link.framing)}};
}

LinkCosts link(const std::map<std::string, double>& given) {
  return {.latency = Duration(static_cast<int64_t>(given.at("latency_ns"))),
          .bytes_per_second = given.at("bytes_per_second"),
          .copied_per_second = given.at("copied_per_second"),
          .per_message = Duration(static_cast<int64_t>(given.at("per_message_ns"))),
          .framing = static_cast<int64_t>(given.at("framing_bytes"))};
}

}  // namespace

CostNumbers numbers_of(const NetworkCosts& costs) {
  return {{"inside", numbers(costs.inside)}, {"between", numbers(costs.between)}};
}

NetworkCosts costs_of(const CostNumbers& numbers) {
  return {.inside = link(numbers.at("inside")), .between = link(numbers.at("between"))};
}

}  // namespace ringdist
