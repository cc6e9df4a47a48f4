// The memory orders of the words that the two ends of a channel share. They have a file of their
// own so that tests can build the transport with a weaker order (tests/mutations).
#pragma once

#include "base/dekker_word.h"

namespace ringdist::shm {

// For the count of published messages, the count of consumed ones, and the sleep state.
using PublishedOrders = SeqCstOrders;
using ConsumedOrders = SeqCstOrders;
using SleepOrders = SeqCstOrders;

}  // namespace ringdist::shm
