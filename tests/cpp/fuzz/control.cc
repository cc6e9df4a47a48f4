// Fuzz target: a control plane, with bytes that come on its connections. It shares a group with
// another plane, with which it must stay connected whatever else comes.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <future>
#include <memory>
#include <set>

#include "base/serialize.h"
#include "control/control_plane.h"
#include "engine/group/notice.h"
#include "fuzz/target.h"
#include "os/socket.h"

namespace ringdist::test {
namespace control_fuzz {

constexpr uint64_t kTested = 1, kOther = 2, kLocalMember = 3, kFarMember = 4, kStranger = 5;
constexpr uint64_t kNonce = 77;
constexpr size_t kMostConnections = 8;

enum Step : uint8_t { kDialLocal, kDialTcp, kSend, kHangUp, kPass, kSteps };

// Keeps what a plane reports.
struct Events final : ControlDelegate {
  void on_process_lost(uint64_t id, const Error&) override { gone(id); }
  void on_process_left(uint64_t id) override { gone(id); }
  void on_control_failed(const Error&) override {}
  void on_flood(uint64_t origin, std::span<const std::byte>) override { floods.insert(origin); }
  void on_membership_stream(FramedSocket, const ControlHello&, LinkKind) override {}
  void on_data_socket(Stream, ConstBytes) override {}
  std::string dump() override { return ""; }
  std::string snapshot(uint8_t) override { return "{}"; }
  void gone(uint64_t id) { check(departed.insert(id).second, "a process departs twice"); }

  std::set<uint64_t> departed, floods;
};

struct Plane {
  explicit Plane(uint64_t id) : plane(id, Config(), events, epoll.value()) {
    check(!plane.listen("127.0.0.1"), "no socket");
  }
  ~Plane() { plane.end(); }
  void turn(TimePoint now, const std::function<void()>& command = nullptr) {
    const auto arrived = epoll.value().wait(Duration(0));
    plane.begin_turn(now);
    for (const auto& event : arrived) plane.on_event(event);
    if (command) command();
    plane.end_turn();
  }
  ControlMember member(int rank) const {
    return {rank, plane.id(), 0, plane.unix_name(), plane.tcp_address(), getpid(), "h"};
  }

  Result<Epoll> epoll = Epoll::create();
  Events events;
  ControlPlane plane;
};

class World {
 public:
  World() {
    const std::string name = "@ringdist-" + std::to_string(getpid()) + "-member";
    const std::vector<ControlMember> members{
        tested_.member(0),
        other_.member(1),
        {2, kLocalMember, 0, name, "127.0.0.1:1", getpid(), "h"},
        {3, kFarMember, 1, "@elsewhere", "127.0.0.1:1", 0, "far"}};
    int rank = 0;
    for (Plane* plane : {&tested_, &other_}) {
      const ControlRequest request{ControlRequest::Kind::kGroup, kNonce, &deadline_,
                                   std::make_shared<std::promise<Error>>()};
      plane->turn(now_, [&] { plane->plane.connect(request, rank, members); });
      ++rank;
    }
    pass(3);
  }
  void step(uint8_t step, FuzzInput& input) {
    if (step == kDialLocal) keep(connect_unix(tested_.plane.unix_name()));
    if (step == kDialTcp) keep(connect_tcp(tested_.plane.tcp_address()));
    if (step == kSend) {
      const size_t at = input.byte();
      const auto bytes = input.piece();
      if (connections_.empty()) return;
      (void)::send(connections_[at % connections_.size()].get(), bytes.data(), bytes.size(),
                   MSG_NOSIGNAL | MSG_DONTWAIT);
      pass(1);
    }
    if (step == kHangUp && !connections_.empty()) {
      connections_.erase(connections_.begin());
      pass(1);
    }
    if (step == kPass) pass(input.byte() % 64);
  }
  // A member may report any departure. Otherwise the two planes still reach each other.
  void end() {
    (void)tested_.plane.report();
    connections_.clear();
    pass(1);
    const auto is_over = [](const Plane& one) {
      return one.events.departed.contains(kTested) || one.events.departed.contains(kOther);
    };
    const std::vector<std::byte> notice = Writer().put(kNonce).take();
    for (int attempt = 0; attempt < 100; ++attempt) {
      if (is_over(tested_) || is_over(other_) || other_.events.floods.contains(kTested)) return;
      tested_.turn(now_, [&] { tested_.plane.flood(notice); });
      pass(1);
    }
    check(false, "two planes lose each other");
  }

 private:
  void keep(ConnectAttempt attempt) {
    if (attempt.failure || connections_.size() == kMostConnections) return;
    const linger reset{1, 0};  // no port stays in TIME_WAIT
    setsockopt(attempt.fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    connections_.push_back(std::move(attempt.fd));
    pass(1);
  }
  void pass(int turns) {
    for (; turns > 0; --turns) {
      now_ += Milliseconds(100);
      tested_.turn(now_);
      other_.turn(now_);
    }
  }

  TimePoint now_ = Clock::now();
  const CancellableDeadline deadline_{now_ + std::chrono::seconds(60)};
  Plane tested_{kTested};
  Plane other_{kOther};
  std::vector<Fd> connections_;
};

bool run(ConstBytes bytes) { return run_steps<World>(bytes, kSteps); }

std::vector<std::byte> seed(Step dial, const std::vector<std::vector<std::byte>>& frames) {
  FuzzSeed out;
  out.byte(dial);
  for (const auto& frame : frames) out.byte(kSend).byte(0).piece(frame);
  return out.byte(kPass).byte(20).byte(kHangUp).byte(kPass).byte(3).take();
}

FuzzSeeds seeds() {
  const auto notice = make_notice(NoticeKind::kStalled, kNonce, 0, 2, 1).encode();
  const std::vector<std::vector<std::byte>> frames{
      FloodRecord{kLocalMember, 1, notice}.frame(),
      FloodRecord{kStranger, 1, notice}.frame(),
      GroupFormed{kNonce, {kLocalMember, kStranger}}.frame(),
      GroupFormed{kNonce + 1, {kLocalMember, kStranger}}.frame(),
      make_frame(FrameType::kHeartbeat),
      make_frame(FrameType::kNeed, std::string_view("\1", 1)),
      PeerDeparture{kStranger, "gone"}.frame(FrameType::kLost),
      make_frame(FrameType::kExits),
      make_frame(FrameType::kSeen)};
  const auto after = [&](uint64_t from, uint64_t nonce) {
    auto out = frames;
    out.insert(out.begin(), ControlHello{from, kTested, nonce}.frame());
    return out;
  };
  const auto hello = [](uint64_t from, uint64_t nonce, FrameType type = FrameType::kHello) {
    return ControlHello{from, kTested, nonce}.frame(type);
  };
  return {
      seed(kDialLocal, after(kLocalMember, 0)),
      seed(kDialLocal, after(kStranger, 0)),
      seed(kDialTcp, after(kFarMember, kNonce)),
      seed(kDialTcp, after(kStranger, kNonce)),
      seed(kDialTcp, after(kStranger, kNonce + 1)),
      seed(kDialLocal,
           {hello(kLocalMember, 0), PeerDeparture{kFarMember, "gone"}.frame(FrameType::kLost)}),
      seed(kDialLocal,
           {hello(kLocalMember, 0), PeerDeparture{kLocalMember, ""}.frame(FrameType::kLeft)}),
      seed(kDialLocal, {make_frame(FrameType::kDumpRequest)}),
      seed(kDialLocal, {hello(kLocalMember, kNonce, FrameType::kMembershipHello)}),
      seed(kDialTcp, {make_frame(FrameType::kDataHello, "hello")}),
      seed(kDialTcp, {make_frame(FrameType::kDumpRequest)}),
  };
}

}  // namespace control_fuzz

const FuzzTarget kControlFuzz{"control", "csrc/control/", control_fuzz::run, control_fuzz::seeds};

}  // namespace ringdist::test
