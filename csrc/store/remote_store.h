// RemoteStore: a client of a HostedStore. A request that waits for a key delays no other one, since
// each request that is under way has a connection of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "os/fork_guard.h"
#include "os/stream.h"
#include "os/tls_key.h"
#include "rendezvous/store.h"
#include "store/store_messages.h"

namespace ringdist {

// Any thread. A request blocks until the store has answered, at most kAnswerTime. It fails with
// kPeerLost if no answer comes or the connection breaks, though the store may have carried it out.
// It fails with kInvalidArgument if the store refuses it, such as an add() to a text.
class RemoteStore final : public Store {
 public:
  static constexpr Milliseconds kAnswerTime{60000};
  // Waits for an event: calls the function with parts of the limit until it returns true. Returns
  // false at the limit. It may throw, which ends connect() and wait().
  using Waits = std::function<bool(std::optional<Milliseconds> limit,
                                   const std::function<bool(std::optional<Milliseconds>)>& wait)>;

  // Does not connect. With a key, the connections are encrypted, and the store must have it, too.
  RemoteStore(std::string host, uint16_t port, std::shared_ptr<const TlsKey> key, Waits waits);

  // Waits until a store answers. Errors: kPeerLost after `timeout`, and after some seconds
  // kMismatch if it does not have the key, or kInvalidArgument if it has another version.
  Error connect(Milliseconds timeout);

  Error set(const std::string& key, std::span<const std::byte> value) override;
  // Returns kInvalidArgument if a key is missing.
  Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override;
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override;
  Error remove(const std::string& key) override { return erase(key).error(); }
  Result<bool> check(const std::vector<std::string>& keys) override;

  // Returns true if the key was there.
  Result<bool> erase(const std::string& key);
  // Returns the number of keys.
  Result<int64_t> count();
  Error append(const std::string& key, ConstBytes value);
  // Waits until all keys are there. Error: kTimeout after `timeout`.
  Error wait(const std::vector<std::string>& keys, Milliseconds timeout);

  const std::string& host() const { return host_; }
  uint16_t port() const { return port_; }
  bool is_encrypted() const { return key_ != nullptr; }

 private:
  // When a request ends, and whether an interrupt may end it before.
  struct Limit {
    TimePoint deadline;
    bool is_interruptible = false;
  };

  Result<StoreAnswer> ask(const StoreRequest& request, Milliseconds time = kAnswerTime);
  Result<StoreAnswer> ask(Stream& stream, const StoreRequest& request, const Limit& limit) const;
  // Returns a connection that no request uses, or a new one.
  Result<Stream> connection(const Limit& limit);
  // Dials all addresses of the host, one after the other.
  Result<Stream> dial_any(const Limit& limit);
  Result<Stream> dial(const std::string& address, const Limit& limit) const;
  void sleep(Milliseconds pause) const;
  Error send(Stream& stream, ConstBytes bytes, const Limit& limit) const;
  // Waits for an event of the stream. Returns false at the limit.
  bool await(const Stream& stream, uint32_t events, const Limit& limit) const;
  Error failed(const std::string& why) const;
  // Returns the error for a connection that has failed; 0 is its end.
  Error broken(const Stream& stream, int errno_value) const;

  const std::string host_;
  const uint16_t port_;
  const std::shared_ptr<const TlsKey> key_;
  const Waits waits_;
  const ForkMark mark_;
  std::mutex mutex_;  // a leaf lock
  std::vector<Stream> idle_ RINGDIST_GUARDED_BY(mutex_);
  std::string address_ RINGDIST_GUARDED_BY(mutex_);  // worked last, so it is dialed first
};

}  // namespace ringdist
