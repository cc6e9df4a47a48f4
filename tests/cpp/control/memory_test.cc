// Memory exhaustion on the control thread, at each allocation in turn. One control plane without
// its thread is watched; the others around it, on the same thread, always have memory. Time is
// simulated, connections are real.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <thread>

#include "control/fixture.h"
#include "control/stepped_plane.h"
#include "os/socket.h"
#include "support/replaced_new.h"

namespace ringdist::test {
namespace {

constexpr uint64_t kGroup = 5;
constexpr uint64_t kChildsGroup = 6;
constexpr uint64_t kWatched = 50;
constexpr uint64_t kChild = 9;  // lower, so its connection stays if there are two

// Starts a process that connects, sends its hello and the report that it has found its group, and
// then waits to be killed. After the fork it runs no code of this project.
pid_t start_child(const SteppedPlane& plane) {
  auto words = ControlHello{kChild, plane.id, 0}.frame();
  const auto formed = GroupFormed{kChildsGroup, {kChild}}.frame();
  words.insert(words.end(), formed.begin(), formed.end());
  const std::string name = plane.plane.unix_name();
  const pid_t child = fork();
  if (child != 0) return child;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  for (;;) {  // reconnects when the connection is closed
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) _exit(1);
    send(fd, words.data(), words.size(), MSG_NOSIGNAL);  // fails if it is closed already
    std::array<char, 1024> rest;
    while (read(fd, rest.data(), rest.size()) > 0) {
    }
    close(fd);
  }
}

// The watched plane is rank 0. Process 2 is on its host, process 3 on another host. Process 4 is
// on its host but shares no group with it.
class World {
 public:
  explicit World(Failures failures)
      : planned_(failures), left_(failures), child_(start_child(*planes_[0])) {}
  ~World() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  SteppedPlane& watched() { return *planes_[0]; }
  SteppedPlane& other(uint64_t id) { return id == kWatched ? watched() : *planes_[id - 1]; }
  bool all_failed() const { return left_.over(); }

  void turn_all(const std::function<void()>& command = nullptr) {
    now_ += Milliseconds(2);
    {
      const FailingAllocations failing(left_);
      turn(watched(), now_, command);
    }
    for (size_t i = 1; i < planes_.size(); ++i)
      if (planes_[i]) turn(*planes_[i], now_);
  }
  // Runs the planes until `true_now` holds. Returns false if that takes too long. Allocations may
  // fail meanwhile.
  bool comes(const std::function<bool()>& true_now) {
    for (int i = 0; i < 10'000 && !true_now(); ++i) {
      // The kernel and the child need real time, and more of it on a busy machine.
      if (i > 100) std::this_thread::sleep_for(std::chrono::microseconds(i < 1000 ? 100 : 1000));
      turn_all();
    }
    return true_now();
  }

  // Sends a request to the watched plane. It must get an answer each time, and succeed once memory
  // is available.
  using Begin = std::function<void(const ControlRequest&)>;
  bool succeeds(ControlRequest request, const Begin& begin) {
    std::string why;
    for (size_t attempts = 0; attempts <= planned_.count; ++attempts) {
      CancellableDeadline deadline(now_ + std::chrono::seconds(15));
      request.deadline = &deadline;
      request.answer = std::make_shared<std::promise<Error>>();
      auto answer = request.answer->get_future();
      const auto answered = [&] {
        return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      };
      turn_all([&] { begin(request); });
      if (!comes(answered)) {
        ADD_FAILURE() << "not answered";
        return false;
      }
      const Error error = answer.get();
      if (!error) return true;
      EXPECT_TRUE(left_.over() || left_.count < planned_.count) << error.what();
      why += error.what() + "\n";
    }
    ADD_FAILURE() << why;
    return false;
  }
  // Runs a command that has no answer, and repeats it if it failed.
  void command(const std::function<void()>& run) {
    bool done = false;
    while (!done)
      turn_all([&] {
        run();
        done = true;
      });
  }

  void child_connects() {
    EXPECT_TRUE(comes([&] {
      const std::string report = watched().plane.report();
      const auto child = report.find("  " + format_id(kChild) + " ");
      return child != std::string::npos && report.find("exit watched", child) != std::string::npos;
    }));
    const std::vector<ControlMember> members{{0, kChild, 0, deaf_name_, "127.0.0.1:1", child_, "h"},
                                             watched().member(1, 0)};
    EXPECT_TRUE(
        succeeds({ControlRequest::Kind::kGroup, kChildsGroup, nullptr, nullptr},
                 [&](const auto& request) { watched().plane.connect(request, 1, members); }));
  }
  void connects() {
    const std::vector<ControlMember> members{watched().member(0, 1), other(2).member(1, 1),
                                             other(3).member(2, 0)};
    CancellableDeadline deadline(now_ + std::chrono::seconds(1000));
    for (int rank : {1, 2}) {
      SteppedPlane& plane = *planes_[static_cast<size_t>(rank)];
      others_answers_.push_back(std::make_shared<std::promise<Error>>());
      plane.plane.connect({ControlRequest::Kind::kGroup, kGroup, &forever_, others_answers_.back()},
                          rank, members);
    }
    for (int j = 0; j < 20; ++j)
      turn_all();  // process 3 dials and is held, because its group does not exist yet
    EXPECT_TRUE(
        succeeds({ControlRequest::Kind::kGroup, kGroup, nullptr, nullptr},
                 [&](const auto& request) { watched().plane.connect(request, 0, members); }));
    for (auto& answer : others_answers_) {
      auto theirs = answer->get_future();
      EXPECT_TRUE(comes(
          [&] { return theirs.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
    }
  }
  void proves() {
    EXPECT_TRUE(succeeds(
        {ControlRequest::Kind::kProof, 4, nullptr, nullptr},
        [&](const auto& request) { watched().plane.prove(request, other(4).plane.unix_name()); }));
  }
  void floods() {
    const auto bytes = [](int text) { return std::vector{static_cast<std::byte>(text)}; };
    command([&] { watched().plane.flood(bytes(1)); });
    other(3).plane.flood(bytes(3));
    for (uint64_t id : {2, 3, 4})
      EXPECT_TRUE(comes([&] { return other(id).told.flood_times(1) == 1; })) << id;
    for (uint64_t id : {kWatched, uint64_t{2}, uint64_t{4}})
      EXPECT_TRUE(comes([&] { return other(id).told.flood_times(3) == 1; })) << id;
  }
  // The kernel reports the child's death. The death of process 3, on another host, shows because
  // dials fail.
  void deaths() {
    kill(child_, SIGKILL);
    expect_lost(kChild);
    planes_[2].reset();
    expect_lost(3);
  }
  void departures(bool process_ends) {
    leave_other(2);
    EXPECT_TRUE(comes([&] { return watched().told.left_times(2) == 1; }));
    command([&] { watched().plane.disconnect(kGroup, 0); });
    auto said = std::make_shared<std::promise<Error>>();
    auto answer = said->get_future();
    turn_all([&] { watched().plane.leave(process_ends, std::move(said)); });
    EXPECT_TRUE(comes(
        [&] { return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
    // The kernel reports the end of a process, but here the process lives on.
    const auto tells = [&] { return process_ends || other(4).told.left_times(kWatched) == 1; };
    EXPECT_TRUE(comes(tells));
    watched().plane.end();
  }
  void expect_told_once() {
    for (auto& plane : planes_) {
      if (!plane) continue;
      for (const uint64_t id : {kWatched, uint64_t{2}, uint64_t{3}, uint64_t{4}, kChild})
        EXPECT_LE(plane->told.lost_times(id) + plane->told.left_times(id), 1) << id;
      EXPECT_LE(plane->told.flood_times(3), 1);
    }
    EXPECT_EQ(watched().told.lost_times(kChild) + watched().told.lost_times(3), 2);
    EXPECT_EQ(watched().told.left_times(2), 1);
  }

 private:
  void expect_lost(uint64_t dead) {
    for (const uint64_t id : {kWatched, uint64_t{2}, uint64_t{4}})
      EXPECT_TRUE(comes([&] { return other(id).told.lost_times(dead) == 1; }))
          << id << " was not told of " << dead << "\n"
          << watched().plane.report();
  }
  void leave_other(uint64_t id) {
    auto said = std::make_shared<std::promise<Error>>();
    turn(other(id), now_, [&] { other(id).plane.leave(false, said); });
  }

  TimePoint now_ = Clock::now();
  const Failures planned_;
  Failures left_;
  std::array<std::unique_ptr<SteppedPlane>, 4> planes_{
      std::make_unique<SteppedPlane>(kWatched), std::make_unique<SteppedPlane>(2),
      std::make_unique<SteppedPlane>(3), std::make_unique<SteppedPlane>(4)};
  CancellableDeadline forever_{now_ + std::chrono::hours(1)};
  std::vector<std::shared_ptr<std::promise<Error>>> others_answers_;
  // Address where the child would listen, so that dials to it succeed but get no answer.
  const std::string deaf_name_ = "@ringdist-deaf-" + std::to_string(getpid());
  Result<Fd> deaf_ = listen_unix(deaf_name_);
  pid_t child_;
};

#ifdef RINGDIST_SANITIZED
constexpr size_t kStride = 7;  // each failure would take minutes
#else
constexpr size_t kStride = 1;
#endif

// Returns true if no allocation failed any more.
bool runs_through(Failures failures) {
  World world(failures);
  world.child_connects();
  world.connects();
  world.proves();
  world.floods();
  world.deaths();
  world.departures(/*process_ends=*/failures.count == 2);
  world.expect_told_once();
  return !world.all_failed();
}

TEST(ControlMemory, WhicheverAllocationFailsNobodyWaitsForEver) {
  set_log_level(LogLevel::kError);
  for (const size_t count : {1, 2, 10}) {
    size_t first = 1;
    while (!HasFailure() && !runs_through({first, count})) first += kStride;
    std::printf("%zu in a row: the last was allocation %zu\n", count, first);
    EXPECT_GT(first, 100u) << "none was hit";
  }
}

}  // namespace
}  // namespace ringdist::test
