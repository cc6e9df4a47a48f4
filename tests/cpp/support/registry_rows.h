// Iteration over all algorithms of the registry, each with each of its collectives.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithm/schedule.h"

namespace ringdist::test {

struct RegistryRow {
  const Algorithm* algorithm;
  Collective kind;
};

inline std::vector<RegistryRow> registry_rows() {
  std::vector<RegistryRow> out;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective kind : algorithm.collectives()) out.push_back({&algorithm, kind});
  return out;
}

inline std::string registry_row_name(const testing::TestParamInfo<RegistryRow>& row) {
  return std::string(row.param.algorithm->name) + "_" +
         std::string(collective_name(row.param.kind));
}

}  // namespace ringdist::test
