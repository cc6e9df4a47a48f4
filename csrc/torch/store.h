// c10d's store as ours.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "rendezvous/store.h"

namespace ringdist {

// c10d's stores are thread-safe; so is this.
std::shared_ptr<Store> wrap_store(c10::intrusive_ptr<c10d::Store> store);

// The host that a TCPStore talks to, "" for other stores.
std::string store_host(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace ringdist
