// The orders in which memory shows what the ends of a link tell each other. A file of its own:
// tests build the transport with a weaker one in its place (tests/mutations).
#pragma once

#include "base/dekker_word.h"

namespace ringdist::shm {

using PublishedOrders = SeqCstOrders;
using ConsumedOrders = SeqCstOrders;
using SleepOrders = SeqCstOrders;

}  // namespace ringdist::shm
