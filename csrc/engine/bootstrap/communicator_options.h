// CommunicatorOptions: the options of a group, as Communicator::create() and bootstraps use them.
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

// Options of one group, on one rank. A value. Rank info carries those on which all ranks must
// agree.
struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string name;
  std::vector<int> members;                        // global ranks, by rank
  Milliseconds timeout{std::chrono::minutes(30)};  // default timeout of ops
  Config config;                 // settings that concern the group; the Context has the rest
  std::shared_ptr<Store> store;  // for the rendezvous; may be null for size 1
  // Other hosts are reached on the route to this host. Without one it is
  // ContextOptions::store_host.
  std::optional<std::string> store_host;
  // The store that `store` is a prefix of, for newcomers. Null stands for `store` itself.
  std::shared_ptr<Store> unprefixed_store;
  // Opens stores that replace a lost one. If it is null there is no replacement.
  std::shared_ptr<StoreServer> store_server;
  GroupCosts costs;                       // cost constants of this rank
  MakeDeviceRunner make_runner;           // null: ops on devices are refused
  std::shared_ptr<GroupService> service;  // null, or a service of this group alone

  // Writes the options that all members must have alike, and the cost constants, into `entry`.
  void state_in(RankInfo& entry) const;
  // Returns options for another group of the same ranks. `timeout` is that of its ops. All other
  // options are kept, the store among them.
  CommunicatorOptions named(std::string name, Milliseconds timeout,
                            std::shared_ptr<GroupService> service) const;
  // Returns options for a group of some of these ranks, in the given order. `own` is this rank's
  // number here, which must be one of them. Name and timeout are kept; the service is not.
  CommunicatorOptions of(const std::vector<int>& ranks, int own) const;
};

}  // namespace ringdist
