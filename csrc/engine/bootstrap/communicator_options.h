#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "base/network_costs.h"
#include "engine/device/device_runner.h"
#include "engine/group/group_service.h"
#include "rendezvous/rank_info.h"
#include "rendezvous/store.h"

namespace ringdist {

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string name;
  std::vector<int> members;  // global ranks
  Milliseconds timeout{std::chrono::minutes(30)};
  Config config;                              // what concerns the group; the rest is the Context's
  std::shared_ptr<Store> store;               // may be null for size 1
  std::optional<std::string> store_host;      // by the route there hosts reach each other
  std::shared_ptr<Store> unprefixed_store;    // that it is a part of, for newcomers; null: `store`
  std::shared_ptr<StoreServer> store_server;  // null: when the store is lost there is none
  GroupCosts costs;                           // this rank's
  MakeDeviceRunner make_runner;               // null: ops on devices are refused
  std::shared_ptr<GroupService> service;      // null, or lives in this group alone

  // Writes down what all members must have alike.
  void state_in(RankInfo& entry) const;
  // Of another group of the same ranks.
  CommunicatorOptions named(std::string name, Milliseconds timeout,
                            std::shared_ptr<GroupService> service) const;
  // Of a group of some of its ranks, in that order, on the one that was `own` of them.
  CommunicatorOptions of(const std::vector<int>& ranks, int own) const;
};

}  // namespace ringdist
