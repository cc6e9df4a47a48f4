// The checks of a MembershipService: a message counts only if it comes from the process that it
// names, and if that process belongs to the group.
#include "membership/membership_service.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/random.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr ProcessId kThisProcess = 1;
constexpr ProcessId kMember = 2;
constexpr ProcessId kNewcomer = 3;
constexpr uint64_t kGroup = 7;
constexpr uint64_t kOtherGroup = 8;
constexpr uint64_t kNumber = 99;

// A group with the processes that a test gives it. It counts join requests and vouches.
class FakeOwner final : public GroupConsensusDelegate {
 public:
  explicit FakeOwner(std::map<ProcessId, PeerAddress> processes, bool accepts = false)
      : processes_(std::move(processes)), accepts_(accepts) {}

  std::optional<PeerAddress> address_of(ProcessId process) override {
    const auto known = processes_.find(process);
    return known == processes_.end() ? std::nullopt : std::optional(known->second);
  }
  std::map<ProcessId, PeerAddress> addresses() override { return processes_; }
  bool accepts_joins() override { return accepts_; }
  JoinAnswer on_join_request(const Newcomer&, const MessageOrigin& from, uint64_t number) override {
    ++requests;
    ip = from.ip;
    return {kNumber, number == kNumber};
  }
  bool on_vouched(ProcessId newcomer, ProcessId member) override {
    EXPECT_EQ(newcomer, kNewcomer);
    vouched_by.push_back(member);
    return false;
  }
  std::string entry() override { return "an entry"; }
  PromiseInfo stop_and_report() override { return {}; }
  void read_vote(const GenerationId&, VoteRead) override {}
  void cast_vote(const GenerationId&, const std::optional<Accepted>&, const Accepted&,
                 VoteCast) override {}
  void on_installed(const Decision&) override { ++installed; }
  void on_begun() override {}
  void on_excluded(const Decision&) override {}

  int requests = 0;
  int installed = 0;
  std::string ip;  // source of the last request
  std::vector<ProcessId> vouched_by;

 private:
  const std::map<ProcessId, PeerAddress> processes_;
  const bool accepts_;
};

PeerAddress at_tcp(ProcessId process, const std::string& address) {
  return {process, LinkKind::kTcp, "", address};
}

PeerAddress at_unix(ProcessId process, const std::string& name) {
  return {process, LinkKind::kLocal, name, ""};
}

std::vector<std::byte> body_of_request(uint64_t number) { return Writer().put(number).take(); }

class MembershipServiceTest : public testing::Test {
 protected:
  std::shared_ptr<FakeOwner> add_group(uint64_t id, std::vector<ProcessId> members,
                                       std::map<ProcessId, PeerAddress> processes,
                                       bool accepts = false) {
    auto owner = std::make_shared<FakeOwner>(std::move(processes), accepts);
    service_.register_group({id, std::move(members)}, owner);
    return owner;
  }
  // Passes a connection inside the host to the service, and returns its other end.
  FramedSocket dial_local(ProcessId from) {
    const std::string name = "@ringdist-service-test-" + std::to_string(random_id());
    auto listener = listen_unix(name);
    EXPECT_TRUE(listener.ok());
    ConnectAttempt dialed = connect_unix(name);
    service_.adopt(FramedSocket(accept_connection(listener.value())), {from, kThisProcess, kGroup},
                   LinkKind::kLocal);
    return FramedSocket(std::move(dialed.fd));
  }
  // The same over TCP, from 127.0.0.1.
  FramedSocket dial_tcp(ProcessId from) {
    auto listener = listen_tcp("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok());
    ConnectAttempt dialed = connect_tcp(local_address(listener.value()).value());
    Fd accepted;
    for (const TimePoint end = Clock::now() + std::chrono::seconds(5);
         !accepted && Clock::now() < end;)
      accepted = accept_connection(listener.value());
    service_.adopt(FramedSocket(std::move(accepted)), {from, kThisProcess, kGroup}, LinkKind::kTcp);
    return FramedSocket(std::move(dialed.fd));
  }
  // Sends a message about `group`, and waits until the service has read it or closed the
  // connection.
  void send(FramedSocket& stream, uint64_t group, MembershipMessage::Kind kind,
            const std::vector<std::byte>& body) {
    const auto message = MembershipMessage{group, kind, body}.encode();
    (void)stream.send(make_frame(FrameType::kMembership, message));
    stream.end_output();
    for (const TimePoint end = Clock::now() + std::chrono::seconds(5); Clock::now() < end;)
      if (stream.receive() == FramedSocket::Input::kEnd) break;
    (void)service_.describe(kGroup);  // the thread has handled all events before it answers
  }
  void send_request(FramedSocket stream, uint64_t group = kGroup, uint64_t number = 0) {
    send(stream, group, MembershipMessage::Kind::kJoinRequest, body_of_request(number));
  }

  MembershipService service_{kThisProcess, PaxosTimeouts{},
                             [](const std::function<void(bool)>& then) { then(true); }};
};

TEST_F(MembershipServiceTest, AMemberIsRecognizedByItsAddress) {
  const auto owner =
      add_group(kGroup, {kThisProcess, kMember}, {{kMember, at_tcp(kMember, "127.0.0.1:9")}});
  send_request(dial_tcp(kMember));
  EXPECT_EQ(owner->requests, 1);
  EXPECT_EQ(owner->ip, "127.0.0.1");
}

TEST_F(MembershipServiceTest, AnotherHostCannotSpeakForAMember) {
  const auto owner =
      add_group(kGroup, {kThisProcess, kMember}, {{kMember, at_tcp(kMember, "127.0.0.2:9")}},
                /*accepts=*/true);
  send_request(dial_tcp(kMember));
  EXPECT_EQ(owner->requests, 0);
}

TEST_F(MembershipServiceTest, APidIsComparedWithThatOfTheListener) {
  const std::string name = "@ringdist-1-" + std::to_string(random_id());
  const auto listener = listen_unix(name);
  ASSERT_TRUE(listener.ok());
  const auto owner =
      add_group(kGroup, {kThisProcess, kMember}, {{kMember, at_unix(kMember, name)}});
  send_request(dial_local(kMember));
  EXPECT_EQ(owner->requests, 1) << "the pid in the name may be that of another namespace";
}

// A child process is the member. This process has the pid in the name, but does not listen there.
TEST_F(MembershipServiceTest, AnotherProcessOfTheHostCannotSpeakForAMember) {
  const std::string name =
      "@ringdist-" + std::to_string(getpid()) + "-" + std::to_string(random_id());
  const pid_t child = fork();
  if (child == 0) {
    const auto listener = listen_unix(name);
    for (;;) pause();
  }
  for (const TimePoint end = Clock::now() + std::chrono::seconds(5);
       connect_unix(name).failure && Clock::now() < end;)
    std::this_thread::sleep_for(Milliseconds(1));
  const auto owner =
      add_group(kGroup, {kThisProcess, kMember}, {{kMember, at_unix(kMember, name)}});
  send_request(dial_local(kMember));
  EXPECT_EQ(owner->requests, 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(MembershipServiceTest, WhereNobodyListensThePidInTheNameCounts) {
  const std::string mine = "@ringdist-" + std::to_string(getpid()) + "-000000000000000a";
  const auto owner = add_group(kGroup, {kThisProcess, kMember, kNewcomer},
                               {{kMember, at_unix(kMember, "@ringdist-1-000000000000000b")},
                                {kNewcomer, at_unix(kNewcomer, mine)}});
  send_request(dial_local(kMember));
  EXPECT_EQ(owner->requests, 0);
  send_request(dial_local(kNewcomer));
  EXPECT_EQ(owner->requests, 1);
}

// The connection is admitted by one group, and its message names another.
TEST_F(MembershipServiceTest, EachMessageNeedsItsOwnGroup) {
  const auto open = add_group(kGroup, {kThisProcess}, {}, /*accepts=*/true);
  const auto closed = add_group(kOtherGroup, {kThisProcess}, {});
  send_request(dial_tcp(kNewcomer), kOtherGroup);
  send_request(dial_local(kNewcomer), kOtherGroup);
  EXPECT_EQ(closed->requests, 0);
  send_request(dial_tcp(kNewcomer));
  EXPECT_EQ(open->requests, 1);
  FramedSocket stream = dial_tcp(kNewcomer);
  send(stream, kGroup, MembershipMessage::Kind::kVouched,
       Writer().put(kGroup).put(kNewcomer).take());
  EXPECT_TRUE(open->vouched_by.empty()) << "only a join request may come from elsewhere";
}

TEST_F(MembershipServiceTest, MembersVouchForANewcomerOfTheirGeneration) {
  const auto owner = add_group(
      kGroup, {kThisProcess, kMember},
      {{kMember, at_tcp(kMember, "127.0.0.1:9")}, {kNewcomer, at_tcp(kNewcomer, "127.0.0.1:8")}});
  const auto vouch = [&](ProcessId from, uint64_t nonce) {
    FramedSocket stream = dial_tcp(from);
    send(stream, kGroup, MembershipMessage::Kind::kVouched,
         Writer().put(nonce).put(kNewcomer).take());
  };
  vouch(kMember, kGroup + 1);
  EXPECT_TRUE(owner->vouched_by.empty()) << "another generation";
  vouch(kNewcomer, kGroup);
  EXPECT_TRUE(owner->vouched_by.empty()) << "no member";
  vouch(kMember, kGroup);
  EXPECT_EQ(owner->vouched_by, (std::vector<ProcessId>{kMember}));
  send_request(dial_tcp(kNewcomer), kGroup, kNumber + 1);
  EXPECT_EQ(owner->vouched_by.size(), 1u) << "it has not repeated the number";
  send_request(dial_tcp(kNewcomer), kGroup, kNumber);
  EXPECT_EQ(owner->vouched_by, (std::vector<ProcessId>{kMember, kThisProcess}));
}

// A decision that admits a newcomer counts only from one of its members.
TEST_F(MembershipServiceTest, ANewcomerIsNotAdmittedByAProcessOutsideOfTheGeneration) {
  const std::map<ProcessId, PeerAddress> processes{{kMember, at_tcp(kMember, "127.0.0.1:9")},
                                                   {4, at_tcp(4, "127.0.0.1:8")}};
  const auto owner = add_group(kGroup, {}, processes, /*accepts=*/true);
  ConsensusMessage begun;
  begun.kind = ConsensusMessageKind::kBegun;
  Decision decision;
  decision.generation = 1;
  decision.after = kGroup;
  decision.members = {kMember, kThisProcess};
  decision.survivor_count = 1;
  decision.newcomers = {{kThisProcess, "an entry"}};
  decision.needs_rendezvous = true;
  begun.generation = decision.id();
  begun.made_by = decision;
  const auto body = encode(begun);
  ASSERT_TRUE(decode_consensus(body).ok());
  for (const ProcessId from : {ProcessId{5}, ProcessId{4}, kMember}) {
    FramedSocket stream = dial_tcp(from);
    send(stream, kGroup, MembershipMessage::Kind::kAgreement, body);
    EXPECT_EQ(owner->installed, from == kMember ? 1 : 0) << "from " << from;
  }
}

}  // namespace
}  // namespace ringdist
