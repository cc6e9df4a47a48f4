#include "bindings/costs.h"

namespace ringdist {
namespace {

// Converts the costs of one kind of link.
std::map<std::string, double> numbers(const LinkCosts& link) {
  std::map<std::string, double> out;
  for (const LinkConstant& one : link_constants()) out[std::string(one.name)] = one.get(link);
  return out;
}

LinkCosts link(const std::map<std::string, double>& given) {
  LinkCosts out;
  for (const LinkConstant& one : link_constants()) one.set(out, given.at(std::string(one.name)));
  return out;
}

}  // namespace

CostNumbers numbers_of(const NetworkCosts& costs) {
  return {{"inside", numbers(costs.inside)}, {"between", numbers(costs.between)}};
}

NetworkCosts costs_of(const CostNumbers& numbers) {
  return {.inside = link(numbers.at("inside")), .between = link(numbers.at("between"))};
}

}  // namespace ringdist
