// How long the codes of kernel/huffman.h are, in loops that a device runs as well.
#pragma once

#include <cstdint>

namespace ringdist {

inline constexpr int kMaxCodeBits = 12;

// The depth of each leaf of a Huffman tree over n >= 2 leaves, whose weights ascend; what they have
// room for is 2 n - 1 nodes. Two queues, of leaves and of inner nodes, stay sorted by themselves
// (J. van Leeuwen, 1976).
constexpr void huffman_depths(int n, uint32_t* weight, uint16_t* depth) {
  uint16_t* const parent = depth;  // until it is known
  int leaf = 0;
  int inner = n;
  for (int node = n; node < 2 * n - 1; ++node) {
    weight[node] = 0;
    for (int child = 0; child < 2; ++child) {
      const bool from_leaves = leaf < n && (inner == node || weight[leaf] <= weight[inner]);
      const int taken = from_leaves ? leaf++ : inner++;
      weight[node] += weight[taken];
      parent[taken] = static_cast<uint16_t>(node);
    }
  }
  depth[2 * n - 2] = 0;
  for (int node = 2 * n - 3; node >= 0; --node)
    depth[node] = static_cast<uint16_t>(depth[parent[node]] + 1);
}

// The same, none above kMaxCodeBits, of at most 256 leaves: weights are made flatter until it is
// so.
constexpr void limited_depths(int n, uint32_t* weight, uint16_t* depth) {
  huffman_depths(n, weight, depth);
  while (depth[0] > kMaxCodeBits) {
    // Equal ones give a tree of 8 levels.
    for (int leaf = 0; leaf < n; ++leaf) weight[leaf] = (weight[leaf] + 1) / 2;
    huffman_depths(n, weight, depth);
  }
}

}  // namespace ringdist
