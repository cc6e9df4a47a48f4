// Control planes for tests: several in this process (Node), and others in forked processes
// (Helper).
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "control/control_thread.h"
#include "os/random.h"

namespace ringdist::test {

using std::chrono::milliseconds;

constexpr milliseconds kSoon(20000);  // limit of a wait for what comes at once

inline TimePoint in(milliseconds d) { return Clock::now() + d; }

inline std::vector<std::byte> to_bytes(const std::string& text) {
  auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline Config config_with_timeout(double peer_timeout) {
  Config config;
  config.peer_timeout = peer_timeout;
  return config;
}

// Records the events that a control plane reports. Thread-safe.
class Recorder : public ControlDelegate {
 public:
  void on_process_lost(uint64_t id, const Error& cause) override {
    change([&] { lost_.emplace(id, cause.message()); });
  }
  void on_process_left(uint64_t id) override {
    change([&] { left_.insert(id); });
  }
  void on_control_failed(const Error& cause) override {
    change([&] { failures_.push_back(cause.message()); });
  }
  void on_flood(uint64_t /*origin*/, std::span<const std::byte> payload) override {
    change([&] {
      floods_.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
    });
  }
  void on_membership_stream(FramedSocket, const ControlHello&, LinkKind) override {}
  void on_data_socket(Stream, ConstBytes) override {}
  std::string dump() override { return "dump of the owner"; }
  std::string snapshot(uint8_t) override { return "{\"pid\":1}"; }

  bool waits_for_lost(uint64_t id, milliseconds limit) {
    return wait(limit, [&] { return lost_.contains(id); });
  }
  bool waits_for_left(uint64_t id, milliseconds limit) {
    return wait(limit, [&] { return left_.contains(id); });
  }
  bool waits_for_failure(milliseconds limit) {
    return wait(limit, [&] { return !failures_.empty(); });
  }
  bool waits_for_floods(size_t count, milliseconds limit) {
    return wait(limit, [&] { return floods_.size() >= count; });
  }
  std::string cause(uint64_t id) {
    std::lock_guard lock(mutex_);
    auto found = lost_.find(id);
    return found == lost_.end() ? "" : found->second;
  }
  size_t lost_count() {
    std::lock_guard lock(mutex_);
    return lost_.size();
  }
  size_t left_count() {
    std::lock_guard lock(mutex_);
    return left_.size();
  }
  std::multiset<std::string> floods() {
    std::lock_guard lock(mutex_);
    return {floods_.begin(), floods_.end()};
  }

 private:
  void change(const std::function<void()>& what) {
    std::lock_guard lock(mutex_);
    what();
    changed_.notify_all();
  }
  bool wait(milliseconds limit, const std::function<bool()>& until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, std::chrono::system_clock::now() + limit, until);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::string> lost_;
  std::set<uint64_t> left_;
  std::vector<std::string> floods_;
  std::vector<std::string> failures_;  // reported by on_control_failed()
};

// A control plane in this process that stands for one process of the job.
struct Node {
  explicit Node(double peer_timeout = 10, uint64_t context_id = random_id(),
                std::shared_ptr<const TlsKey> key = nullptr)
      : id(context_id) {
    auto started = ControlThread::start(id, config_with_timeout(peer_timeout), "127.0.0.1", events,
                                        std::move(key));
    EXPECT_TRUE(started.ok()) << (started.ok() ? "" : started.error().what());
    if (started.ok()) control = std::move(started.value());
  }
  ControlMember member(int rank, int host) const {
    return {rank,
            id,
            host,
            control->unix_name(),
            control->tcp_address(),
            getpid(),
            "host" + std::to_string(host)};
  }

  uint64_t id;
  Recorder events;
  std::unique_ptr<ControlThread> control;
};

using Nodes = std::vector<std::unique_ptr<Node>>;

inline Nodes make_nodes(size_t count, double peer_timeout = 10) {
  Nodes out;
  for (size_t i = 0; i < count; ++i) out.push_back(std::make_unique<Node>(peer_timeout));
  return out;
}

// Returns members where rank i is node i on host host[i].
inline std::vector<ControlMember> members_of(const Nodes& nodes, const std::vector<int>& host) {
  std::vector<ControlMember> out;
  for (size_t i = 0; i < nodes.size(); ++i)
    out.push_back(nodes[i]->member(static_cast<int>(i), host[i]));
  return out;
}

// Connects every node of the group at once, as ranks would, and waits for all.
inline void connect_all(const Nodes& nodes, uint64_t nonce,
                        const std::vector<ControlMember>& members) {
  std::vector<std::future<Error>> answers;
  for (const ControlMember& m : members)
    for (auto& node : nodes)
      if (node->id == m.context_id)
        answers.push_back(std::async(std::launch::async, [&node, nonce, m, &members] {
          return node->control->connect_group(nonce, m.rank, members, in(milliseconds(8000)));
        }));
  for (auto& answer : answers) {
    Error e = answer.get();
    EXPECT_FALSE(e) << e.what();
  }
}

// Returns the reply to a dump request, as `torch_ringdist dump` gets it, or "" if there is none.
std::string request_dump(const std::string& unix_name);

// Returns true if `text` appears in the dump (or disappears from it) in time.
bool dump_shows(const Node& node, const std::string& text, bool present = true);

// A control plane in its own forked process. Create all helpers before any thread, because the
// sanitizers do not support a fork with several threads.
class Helper {
 public:
  explicit Helper(double peer_timeout = 10);
  ~Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  pid_t pid() const { return pid_; }
  ControlMember member(int rank, int host) const;

  // Each command returns the answer of the helper.
  void begin_connect(uint64_t nonce, int rank, const std::vector<ControlMember>& members);
  std::string finish_connect() { return read_line(); }
  std::string count_lost() { return ask("lost"); }
  std::string cause_of(uint64_t id) { return ask("cause " + std::to_string(id)); }
  void flood(const std::string& text) { ask("flood " + text); }
  void leave_and_exit();
  // Announces that the helper is about to end, as at interpreter exit. Afterwards, end() ends it.
  void begin_exit();
  void end();
  // Creates a child that keeps copies of all descriptors for longer than any test.
  void spawn_holder();

  void signal(int number) const;

 private:
  static void serve(int socket, double peer_timeout);
  std::string ask(const std::string& command);
  void write_line(const std::string& link) const;
  std::string read_line();

  pid_t pid_ = -1;
  pid_t holder_ = -1;
  int socket_ = -1;
  uint64_t id_ = 0;
  std::string unix_name_;
  std::string tcp_address_;
};

}  // namespace ringdist::test
