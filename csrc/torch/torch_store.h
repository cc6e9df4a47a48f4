// Adapts c10d's stores to the Store interface of rendezvous/.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "engine/context/context.h"
#include "rendezvous/store.h"

namespace ringdist {

// Returns an adapter for a c10d store. It is thread-safe, as c10d's stores are, and returns kSystem
// for each exception of the store. With a context, which must outlive it, a TCPStore client that
// its user blocks in a get() is bypassed (see FallbackStore). If the context has a key, values are
// sealed, unless the connections of the store are encrypted; `scope` is as for SealedStore.
std::shared_ptr<Store> wrap_store(c10::intrusive_ptr<c10d::Store> store);
std::shared_ptr<Store> wrap_store(c10::intrusive_ptr<c10d::Store> store, Context& context,
                                  const std::string& scope = "");

// Opens a client of the TCPStore at a host and a port. Connecting takes `timeout` at most; a store
// that accepts the connection and never answers blocks the call. Throws what c10d throws.
std::shared_ptr<Store> open_tcp_store(const std::string& host, uint16_t port, Milliseconds timeout);

// Opens a client of the HostedStore there, encrypted if there is a key. Waits for its answer.
// Errors: those of RemoteStore::connect().
Result<std::shared_ptr<Store>> open_hosted_store(const std::string& host, uint16_t port,
                                                 std::shared_ptr<const TlsKey> key,
                                                 Milliseconds timeout);

// Returns the store without prefixes, which all processes of the job can share.
c10::intrusive_ptr<c10d::Store> unprefixed_store(const c10::intrusive_ptr<c10d::Store>& store);

// Publishes that a rank cannot create a group, see rendezvous/rendezvous.h. Errors are ignored.
void publish_failure(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                     const std::vector<int>& members, const Error& why);

// Returns the host that a TCPStore or a RingdistStore connects to; "" for other stores.
std::string store_host(const c10::intrusive_ptr<c10d::Store>& store);

// Returns the store server of this process. It serves stores after a group has lost its first one:
// HostedStores with the key of the first call, or else TCPStores of c10d. A store that it has
// offered lives as long as the process.
std::shared_ptr<StoreServer> process_store_server(const std::shared_ptr<const TlsKey>& key);

}  // namespace ringdist
