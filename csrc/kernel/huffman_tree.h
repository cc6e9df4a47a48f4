// Code lengths for kernel/huffman.h, as loops that a device can run as well.
#pragma once

#include <cstdint>

namespace ringdist {

inline constexpr int kMaxCodeBits = 12;

// Computes the depth of each leaf of a Huffman tree over n >= 2 leaves with ascending weights. Both
// arrays have space for 2 n - 1 nodes; weights of inner nodes and all depths are written. Two
// queues, of leaves and of inner nodes, stay sorted without effort (J. van Leeuwen, 1976). Of equal
// weights a leaf is taken first, which codec/lossless.spec.md requires.
constexpr void huffman_depths(int n, uint32_t* weight, uint16_t* depth) {
  uint16_t* const parent = depth;  // `depth` holds parents first
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

// Does the same, but limits depths to kMaxCodeBits, for at most 256 leaves. It flattens the weights
// until the tree is low enough, which keeps them ascending. depth[0] is the largest depth, because
// the lightest leaf is in the first pair.
constexpr void limited_depths(int n, uint32_t* weight, uint16_t* depth) {
  huffman_depths(n, weight, depth);
  while (depth[0] > kMaxCodeBits) {
    // This ends, because equal weights give a tree of at most 8 levels.
    for (int leaf = 0; leaf < n; ++leaf) weight[leaf] = (weight[leaf] + 1) / 2;
    huffman_depths(n, weight, depth);
  }
}

}  // namespace ringdist
