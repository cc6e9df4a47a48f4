#include "engine/group/group_descriptor.h"

#include <algorithm>

#include "base/hash.h"

namespace ringdist {

uint64_t derived_nonce(const GroupDescriptor& parent, std::string_view suffix, uint64_t which) {
  Hash hash;
  hash.add(parent.nonce).add(uint64_t{parent.generation}).add(suffix).add(which);
  return std::max<uint64_t>(hash.value(), 1);  // 0 means that there is no nonce
}

}  // namespace ringdist
