#include "torch/ops/by_dtype.h"

#include <algorithm>

namespace ringdist {

std::vector<std::vector<size_t>> by_dtype(const Tensors& tensors) {
  std::vector<std::vector<size_t>> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto same = std::ranges::find_if(out, [&](const auto& group) {
      return tensors[group[0]].scalar_type() == tensors[i].scalar_type();
    });
    if (same == out.end())
      out.push_back({i});
    else
      same->push_back(i);
  }
  return out;
}

Tensors pick(const Tensors& tensors, const std::vector<size_t>& indices) {
  Tensors out;
  for (const size_t i : indices) out.push_back(tensors[i]);
  return out;
}

}  // namespace ringdist
