// A TCPStore that may stop answering, as where its host is cut off and nothing tells its clients:
// each request ends within a limit. A request runs on a thread of the pool, with a client that is
// left alone once it has let a request wait for too long; the next request opens another. Of
// clients that are being opened there is one at a time, so that a store that accepts connections
// and says nothing costs one thread and one descriptor. Any thread.
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
#include "engine/task_pool.h"
#include "os/fork_guard.h"
#include "rendezvous/store.h"

namespace ringdist {

class BoundedStore {
 public:
  BoundedStore(std::string host, uint16_t port, Milliseconds limit);
  BoundedStore(const BoundedStore&) = delete;
  BoundedStore& operator=(const BoundedStore&) = delete;

  // Success as soon as a store answers there, within the timeout.
  Error connect(Milliseconds timeout);

  // Errors of all: kPeerLost, the store did not answer within the limit, or has failed. It may
  // still do what it was asked for. What the interrupt check throws passes through.
  Error set(const std::string& key, const std::string& value);
  Result<std::optional<std::string>> find(const std::string& key);
  Result<int64_t> add(const std::string& key, int64_t amount);
  // What is there afterwards: `desired` if it was `expected`, "" being that there was nothing.
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired);

 private:
  using Client = std::shared_ptr<Store>;
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Client client RINGDIST_GUARDED_BY(mutex);
    bool opening RINGDIST_GUARDED_BY(mutex) = false;
    uint64_t openings RINGDIST_GUARDED_BY(mutex) = 0;  // that have ended
    Error failure RINGDIST_GUARDED_BY(mutex);          // of the last one
  };

  template <typename T>
  Result<T> ask(std::function<Result<T>(Store&)> request);
  Result<Client> client_until(TimePoint deadline);
  template <typename Condition>
  bool wait(TimePoint deadline, const Condition& condition);
  Error silent(const std::string& why) const;

  const std::string host_;
  const uint16_t port_;
  const Milliseconds limit_;
  const ForkMark mark_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // tasks hold it, too
  TaskPool pool_;
};

}  // namespace ringdist
