// BoundedStore: a client of a TCPStore or of a HostedStore in which each request ends within a
// limit. PyTorch's client waits for a quarter of an hour if the store's host loses its link,
// because TCP gets no reset, and RemoteStore for a minute.
//
// Each request runs on a thread of a pool. A connection on which a request has failed or timed out
// is abandoned, and the next request opens another one. Only one connection is opened at a time, so
// that a store which accepts connections and never answers costs one thread and one descriptor. All
// functions may be called by any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "engine/context/task_pool.h"
#include "os/fork_guard.h"
#include "rendezvous/sealed_store.h"

namespace ringdist {

class BoundedStore {
 public:
  // Does not connect. `limit` is the time that each request may take. A HostedStore is expected
  // there if `is_hosted`, else a TCPStore. With credentials in `files`, connections to a
  // HostedStore are encrypted, and values in a TCPStore are sealed. Throws errors of the files, as
  // throw_error() does.
  BoundedStore(std::string host, uint16_t port, Milliseconds limit, const TlsFiles& files,
               bool is_hosted);
  BoundedStore(const BoundedStore&) = delete;
  BoundedStore& operator=(const BoundedStore&) = delete;

  // Returns success as soon as a store answers, kMismatch if it does not have the key, or kPeerLost
  // after `timeout`.
  Error connect(Milliseconds timeout);

  // The requests return kPeerLost if the store has not answered within the limit, or has failed.
  // The store may still carry out such a request. They return kMismatch for a value of a process
  // with another key, or of one with a key if this one has none. An exception of the interrupt
  // check is passed on.
  Error set(const std::string& key, const std::string& value);
  // Returns nothing if the key is missing.
  Result<std::optional<std::string>> find(const std::string& key);
  // Returns the sum. A missing key counts as 0. A TCPStore's server ends if the value is no number.
  Result<int64_t> add(const std::string& key, int64_t amount);
  // Returns a sum of add(), which is never sealed; 0 if the key is missing, or its value is not a
  // whole number of at most ten digits.
  Result<int64_t> count(const std::string& key);
  // Sets the value to `desired` if it was `expected`; "" stands for a missing key. Returns the
  // value that the key has afterwards.
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired);

 private:
  using Client = std::shared_ptr<Store>;
  // State that tasks in the pool share, since they may outlive this object.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Client client RINGDIST_GUARDED_BY(mutex);
    bool opening RINGDIST_GUARDED_BY(mutex) = false;
    uint64_t openings RINGDIST_GUARDED_BY(mutex) = 0;  // attempts that have ended
    Error failure RINGDIST_GUARDED_BY(mutex);          // why the last attempt failed
  };

  // Runs a request on the pool, within the limit. With a key, the request gets a SealedStore of a
  // TCPStore, unless it is `plain`.
  template <typename T>
  Result<T> ask(const std::function<Result<T>(Store&)>& request, bool plain = false);
  // `limit` is the time until `deadline`, for the error.
  Result<Client> client_until(TimePoint deadline, Milliseconds limit);
  template <typename Condition>
  bool wait(TimePoint deadline, const Condition& condition);
  // Returns the error for a store that failed, or did not answer for `limit` if `why` is empty.
  Error silent(const std::string& why, Milliseconds limit) const;

  const std::string host_;
  const uint16_t port_;
  const Milliseconds limit_;
  const bool is_hosted_;
  const std::shared_ptr<const TlsKey> key_;
  const ForkMark mark_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // shared with tasks
  TaskPool pool_;
};

}  // namespace ringdist
