// Converts network constants from and to Python, where they are `{"inside": {...}, "between":
// {...}}`. Each has the keys of torch_ringdist._costs.Link, which checks the values. Pure; any
// thread, and the GIL is not needed.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <map>
#include <string>

#include "base/network_costs.h"

namespace ringdist {

// Costs by place and name.
using CostNumbers = std::map<std::string, std::map<std::string, double>>;

// Returns the constants as Python has them.
CostNumbers numbers_of(const NetworkCosts& costs);
// Returns the constants for the engine. Keys beyond those that it has are ignored. Throws
// std::out_of_range for a key that is missing.
NetworkCosts costs_of(const CostNumbers& numbers);

}  // namespace ringdist
