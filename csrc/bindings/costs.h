// The constants of a network as Python has them: {"inside": {...}, "between": {...}}, each with the
// keys of torch_ringdist._costs.Link, which checks their values.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <map>
#include <string>

#include "base/network_costs.h"

namespace ringdist {

using CostNumbers = std::map<std::string, std::map<std::string, double>>;

CostNumbers numbers_of(const NetworkCosts& costs);
// Throws std::out_of_range for a key that is missing.
NetworkCosts costs_of(const CostNumbers& numbers);

}  // namespace ringdist
