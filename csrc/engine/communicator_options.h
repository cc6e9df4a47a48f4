#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "network/costs.h"
#include "rendezvous/store.h"

namespace ringdist {

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string name;
  std::vector<int> members;  // global ranks
  Milliseconds timeout{std::chrono::minutes(30)};
  Config config;                 // what concerns the group; the rest is the Context's
  std::shared_ptr<Store> store;  // may be null for size 1
  GroupCosts costs;              // this rank's
};

}  // namespace ringdist
