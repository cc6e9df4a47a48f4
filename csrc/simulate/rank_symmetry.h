// Whether ranks of a group are alike, so that some may stand for all: rank r + n does what rank r
// does, with every peer n further, and has its peers on its host where r has. Pure.
#pragma once

#include "algorithm/schedule.h"
#include "base/topology.h"

namespace ringdist {

// What steps do, but for where their ranges lie; counts that differ by one element are taken to be
// the same, as those of shards.
bool are_symmetric(const Schedule& schedule, const Schedule& further, int by, int size);

// The least n for which all ranks are alike; `size` where that is none less. `whole_hosts`: and the
// first n have no host in common with the others. The layout is looked at whole, schedules of some
// ranks: the first n and the root, each with those n and size / 2 further and n back.
int symmetry_period(const Algorithm& algorithm, Collective kind, const Shape& shape,
                    const Topology& topology, bool whole_hosts);

}  // namespace ringdist
