// HostedStore: the server of a key-value store, in which the ranks of a job find each other. It
// replaces c10d's TCPStore, which has no encryption and no bounds. RemoteStore is its client.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "control/control_frames.h"
#include "control/handshakes.h"
#include "os/epoll.h"
#include "os/fd.h"
#include "os/fork_guard.h"
#include "os/stream.h"
#include "os/tls_key.h"
#include "store/store_messages.h"

namespace ringdist {

// Keys and values, and the clients that wait for keys. Not thread-safe.
class StoreTable {
 public:
  // Limit of all keys and values together, in bytes.
  static constexpr size_t kMaxBytes = size_t{1} << 30;
  static constexpr size_t kMaxKeys = size_t{1} << 22;
  // Limit of the keys that clients wait for, in bytes.
  static constexpr size_t kMaxWaitBytes = size_t{64} << 20;

  // Carries a request out. Returns nothing for kWait if keys are missing: then take_ready() names
  // the client when they are there.
  std::optional<StoreAnswer> handle(uint64_t client, StoreRequest request);
  // Forgets that a client waits.
  void end_wait(uint64_t client);
  // Returns the clients that wait no longer, since their keys are there.
  std::vector<uint64_t> take_ready() { return std::exchange(ready_, {}); }

 private:
  using Value = std::vector<std::byte>;

  // Sets a key. Returns why not, if there is no room.
  std::optional<StoreAnswer> put(const std::string& key, Value value);
  // Removes a key from those that a client waits for.
  void end_wait(uint64_t client, const std::string& key);
  StoreAnswer add(const std::string& key, int64_t amount);
  StoreAnswer compare_set(const std::string& key, const Value& expected, const Value& desired);
  StoreAnswer get(const std::vector<std::string>& keys) const;
  StoreAnswer remove(const std::string& key);
  bool has_all(const std::vector<std::string>& keys) const;
  std::optional<StoreAnswer> wait(uint64_t client, const std::vector<std::string>& keys);

  std::map<std::string, Value> values_;
  size_t bytes_ = 0;
  std::map<uint64_t, std::set<std::string>> waiting_;  // missing keys of clients
  std::map<std::string, std::set<uint64_t>> waiters_;  // the same by key
  size_t wait_bytes_ = 0;
  std::vector<uint64_t> ready_;
};

// Serves a store until it is destroyed. It has a thread of its own, and with a key one for
// handshakes. In a forked child it does nothing. Any thread.
class HostedStore {
 public:
  // Serves at a TCP socket that listens. With a key, only clients that have it, too, are served.
  // Error: kSystem.
  static Result<std::unique_ptr<HostedStore>> serve(Fd listener, std::shared_ptr<const TlsKey> key);
  ~HostedStore();
  HostedStore(const HostedStore&) = delete;
  HostedStore& operator=(const HostedStore&) = delete;
  // Ends its threads and closes all sockets. A later call does nothing.
  void stop();

  // Returns the address at which it listens, as format_address() does.
  const std::string& address() const { return address_; }

 private:
  struct Client {
    Stream stream;
    TimePoint since;             // when it was accepted
    TimePoint moved_at = since;  // when bytes came from it or went to it
    FrameReader reader{};
    size_t unread = 0;             // bytes in `reader`
    std::vector<std::byte> out{};  // the rest of an answer
    size_t sent = 0;
    bool is_greeted = false;
    std::optional<TimePoint> waits_until{};  // for keys
    std::optional<StoreRequest> held{};      // see hold()
    bool wants_output = false;

    // Returns true while a request or an answer is on its way.
    bool has_transfer() const { return unread > 0 || !out.empty(); }
  };

  HostedStore(Fd listener, std::string address, Epoll epoll, EventFd stop,
              std::shared_ptr<const TlsKey> key)
      : listener_(std::move(listener)),
        address_(std::move(address)),
        epoll_(std::move(epoll)),
        stop_(std::move(stop)),
        key_(std::move(key)) {}
  Error start();
  // The following run on the thread.
  void run();
  void handle(uint64_t key);
  Duration time_to_wait() const;
  void accept_some();
  void add(Stream stream);
  void make_room();
  // Ends the connection of a client that has no request. Returns false if there is none.
  bool drop_idle();
  // Returns true if the request is carried out later, since answers of others take much memory.
  bool hold(uint64_t id, Client& client, StoreRequest& request);
  void resume();
  // Reads what a client has sent, and sends the rest of an answer. Returns false if it ends.
  bool advance(uint64_t id, Client& client);
  bool receive(uint64_t id, Client& client);
  // Carries a request out, or checks a hello. Returns false if the client ends.
  bool take(uint64_t id, Client& client, const Frame& frame);
  bool answer(Client& client, const StoreAnswer& answer);
  // Answers a client that has waited. Drops it if that fails.
  void reply(uint64_t id, Client& client, const StoreAnswer& result);
  bool write(Client& client);
  bool flush(uint64_t id, Client& client);
  // Counts bytes of requests and answers that are on their way. Returns false if there are too many
  // of all clients.
  bool count(ptrdiff_t bytes);
  // Answers clients for which keys have come.
  void wake();
  // Ends waits at their deadline, clients without a hello, and transfers that do not go on.
  void expire();
  void drop(uint64_t id);

  Fd listener_;
  const std::string address_;
  Epoll epoll_;
  const EventFd stop_;
  const std::shared_ptr<const TlsKey> key_;
  std::unique_ptr<Handshakes> handshakes_;  // with a key
  std::map<uint64_t, Client> clients_;      // by age
  std::set<uint64_t> held_;                 // clients with a request that is held back
  StoreTable table_;
  size_t buffered_ = 0;     // bytes of requests and answers
  uint64_t next_id_ = 16;   // lower keys of the epoll set are the listener's and such
  TimePoint checked_at_{};  // time of the last expire()
  std::optional<TimePoint> accepts_again_;  // after a lack of descriptors
  ForkMark mark_;
  std::mutex stop_mutex_;
  std::thread thread_;
};

}  // namespace ringdist
