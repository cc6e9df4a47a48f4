// c10d's store as ours.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "engine/context/context.h"
#include "rendezvous/store.h"

namespace ringdist {

// c10d's stores are thread-safe; so are these. With a context, for a group of its, which must
// outlive it: a TCPStore's client that its user holds up by a get is bypassed.
std::shared_ptr<Store> wrap_store(c10::intrusive_ptr<c10d::Store> store);
std::shared_ptr<Store> wrap_store(c10::intrusive_ptr<c10d::Store> store, Context& context);

// Opens a client of the TCPStore at a host and a port. Connecting takes `timeout` at most; a store
// that accepts the connection and never answers blocks the call. Throws what c10d throws.
std::shared_ptr<Store> open_tcp_store(const std::string& host, uint16_t port, Milliseconds timeout);

// What it is a part of, which all processes of the job can share: without prefixes.
c10::intrusive_ptr<c10d::Store> unprefixed_store(const c10::intrusive_ptr<c10d::Store>& store);

// For a rank that cannot create a group: as in rendezvous/rendezvous.h.
void publish_failure(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                     const std::vector<int>& members, const Error& why);

// The host that a TCPStore talks to, "" for other stores.
std::string store_host(const c10::intrusive_ptr<c10d::Store>& store);

// Stores that processes of a group serve when the one that it began with is lost: c10d's TCPStore.

// The process'. What it has offered stays for as long as the process does.
std::shared_ptr<StoreServer> process_store_server();

}  // namespace ringdist
