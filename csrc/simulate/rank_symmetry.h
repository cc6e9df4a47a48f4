// Symmetry of the ranks of a group, by which some ranks can stand for all. With a symmetry period
// n, rank r + n does what rank r does, with every peer n further on. The peers that share a host
// with r correspond to those that share one with r + n. Pure; any thread.
#pragma once

#include "algorithm/schedule.h"
#include "base/topology.h"

namespace ringdist {

// Returns true if `further` is `schedule` with every peer moved by `by` ranks, modulo `size`.
// Offsets of ranges are ignored, and counts may differ by one element, as those of shards do.
bool are_symmetric(const Schedule& schedule, const Schedule& further, int by, int size);

// Returns the least n that is a symmetry period and divides `size`; this is `size` if there is no
// smaller one. The rank in `shape` is not read. With `whole_hosts`, the first n ranks must share no
// host with the others.
//
// The whole layout is checked, but schedules are compared for some ranks only. These are the first
// n and the root, each with the ranks n and about size / 2 further on and n back.
int symmetry_period(const Algorithm& algorithm, Collective kind, const Shape& shape,
                    const Topology& topology, bool whole_hosts);

}  // namespace ringdist
