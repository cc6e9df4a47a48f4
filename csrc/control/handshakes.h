// Handshakes of TLS for the connections of the control plane, on a thread of their own. So
// strangers that dial cost the control thread nothing before they have shown that they have the
// key.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "os/epoll.h"
#include "os/stream.h"

namespace ringdist {

// Runs handshakes. The owner waits for its descriptor, then takes the streams that are ready.
class Handshakes {
 public:
  // A handshake that has ended. If it has failed, there is no stream.
  struct Ended {
    uint64_t key = 0;
    Stream stream;
    int problem = 0;  // errno
    std::string reason;
  };

  // Starts the thread. Error: kSystem.
  static Result<std::unique_ptr<Handshakes>> start();
  ~Handshakes();
  Handshakes(const Handshakes&) = delete;
  Handshakes& operator=(const Handshakes&) = delete;

  // Runs the handshake of a connected socket, for at most 5 s. `key` is returned with the result.
  // Key 0 stands for an accepted connection. At most 256 of these are in a handshake: for a further
  // one, the oldest without input ends, or else the oldest. Their failures are logged, at most one
  // a second, and have no result. Any thread.
  void add(uint64_t key, Stream stream);
  // Becomes readable when there are results, or after wake().
  int event_fd() const { return results_ready_.get(); }
  void wake() const { results_ready_.signal(); }
  // Returns all results so far. Any thread.
  std::vector<Ended> take();

 private:
  struct Running {
    uint64_t key;
    Stream stream;
    TimePoint since;
    uint32_t events;
    bool heard = false;
  };

  Handshakes(Epoll epoll, EventFd added, EventFd results_ready)
      : epoll_(std::move(epoll)),
        added_(std::move(added)),
        results_ready_(std::move(results_ready)) {}
  void run();
  // The following run on the thread.
  void adopt_added(TimePoint now);
  void make_room();
  void advance(uint64_t id);
  // Removes a handshake and passes its result on.
  void end(uint64_t id, int problem, const std::string& reason);

  Epoll epoll_;
  const EventFd added_;
  const EventFd results_ready_;
  std::map<uint64_t, Running> running_;  // by age
  uint64_t next_id_ = 1;                 // 0 is the key of added_
  TimePoint logged_at_{};                // time of the last log of a failure
  std::mutex mutex_;                     // a leaf lock
  std::vector<std::pair<uint64_t, Stream>> new_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<Ended> results_ RINGDIST_GUARDED_BY(mutex_);
  bool stopping_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringdist
