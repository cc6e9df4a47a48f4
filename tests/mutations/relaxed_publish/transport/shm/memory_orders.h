// In place of csrc/transport/shm/memory_orders.h: a slot is published before it is filled.
#pragma once

#include "base/dekker_word.h"

namespace ringdist::shm {

struct PublishedOrders {
  static constexpr std::memory_order kStore = std::memory_order_relaxed;
  static constexpr std::memory_order kLoad = std::memory_order_seq_cst;
};
using ConsumedOrders = SeqCstOrders;
using SleepOrders = SeqCstOrders;

}  // namespace ringdist::shm
