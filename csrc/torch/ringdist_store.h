// RingdistStore: the store of init_method="ringdist://HOST:PORT" as a store of c10d.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "os/fd.h"
#include "store/hosted_store.h"
#include "store/remote_store.h"

namespace ringdist {

// A client, and in one process of the job also the server, which ends with its last client here.
// Any thread. A wait for a key, such as in get(), delays no other call. Calls raise
// DistNetworkError if the store has failed, DistStoreError if a key does not come within the
// timeout of the store, and ArgumentError for a request that the store refuses.
class RingdistStore final : public c10d::Store {
 public:
  using Bytes = std::vector<uint8_t>;

  // Serves the store if there is a `listener`, which is a TCP socket that listens; its port counts
  // then. Otherwise waits until a store answers at the address, for `timeout` at most. With
  // credentials in `files`, the connections are encrypted. Throws DistNetworkError, and errors of
  // the files.
  RingdistStore(const std::string& host, uint16_t port, Fd listener,
                std::chrono::milliseconds timeout, const TlsFiles& files);

  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::set;
  void set(const std::string& key, const Bytes& value) override;
  using c10d::Store::compareSet;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const Bytes& value) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override;
  bool hasExtendedApi() const override { return true; }

  const std::string& host() const { return remote_->host(); }
  uint16_t port() const { return remote_->port(); }
  // Returns the client, which clones share.
  const std::shared_ptr<RemoteStore>& remote() const { return remote_; }

 private:
  RingdistStore(std::shared_ptr<HostedStore> hosted, std::shared_ptr<RemoteStore> remote,
                std::chrono::milliseconds timeout)
      : c10d::Store(timeout), hosted_(std::move(hosted)), remote_(std::move(remote)) {}

  std::shared_ptr<HostedStore> hosted_;  // null if another process serves the store
  std::shared_ptr<RemoteStore> remote_;
};

// Serves a HostedStore, which end_hosted_stores() ends if it still lives. Errors: those of
// HostedStore::serve().
Result<std::shared_ptr<HostedStore>> serve_hosted_store(Fd listener,
                                                        std::shared_ptr<const TlsKey> key);
// Returns true if this process serves a HostedStore at that port.
bool serves_hosted_store(uint16_t port);
// Ends the stores that this process serves, because exit() ends OpenSSL, which they use.
void end_hosted_stores();

}  // namespace ringdist
