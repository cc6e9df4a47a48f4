// In place of csrc/transport/shm/memory_orders.h: a slot is given back before it was read.
#pragma once

#include "base/dekker_word.h"

namespace ringdist::shm {

struct ConsumedOrders {
  static constexpr std::memory_order kStore = std::memory_order_relaxed;
  static constexpr std::memory_order kLoad = std::memory_order_seq_cst;
};
using PublishedOrders = SeqCstOrders;
using SleepOrders = SeqCstOrders;

}  // namespace ringdist::shm
