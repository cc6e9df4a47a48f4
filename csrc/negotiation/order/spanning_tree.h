// By which way ranks tell that they are ready: up to rank 0, inside hosts first, so that a host
// sends one message for all its ranks. Pure.
#pragma once

#include <vector>

#include "base/topology.h"

namespace ringdist {

// One rank's place in it.
struct SpanningTree {
  // Of a rank inside its host, and of a host.
  static constexpr int kChildren = 4;

  int parent = -1;  // of rank 0
  std::vector<int> children;

  static SpanningTree of(const Topology& topology, int rank);
};

}  // namespace ringdist
