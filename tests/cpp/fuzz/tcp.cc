// Fuzz target: transport tcp, with bytes that come on its connections.
#include <sys/socket.h>

#include <array>
#include <map>
#include <memory>

#include "base/serialize.h"
#include "fuzz/target.h"
#include "os/socket.h"
#include "transport/tcp/data_port.h"
#include "transport/tcp/tcp_transport.h"

namespace ringdist::test {
namespace tcp_fuzz {

constexpr ContextId kTested = 1, kPeer = 2, kUnknown = 3;
constexpr size_t kMaxPayload = size_t{64} << 10;
constexpr size_t kMostConnections = 8;
constexpr int kMostSends = 16;

enum Step : uint8_t { kDial, kBytes, kSend, kAccept, kHangUp, kFlush, kRevoke, kSteps };

// Checks that each send ends once.
struct Receiver final : TransportDelegate {
  void on_message(ContextId from, ConstBytes header, const Payload& payload) override {
    check(from != 0 && header.size() <= kMaxHeaderBytes && payload.size() <= kMaxPayload,
          "a message above the limits");
    ++messages;
  }
  void on_sent(SendId send_id, const Error&) override {
    check(open.erase(send_id) == 1, "a send ends twice");
  }
  void on_connection_lost(std::string_view, ContextId peer, const Error&) override {
    check(peer == kPeer, "an unknown peer is lost");
  }
  bool takes_more() const override { return messages % 5 != 4 || ++asked % 2 == 0; }

  std::map<SendId, std::vector<std::byte>> open;
  size_t messages = 0;
  mutable size_t asked = 0;
};

class World {
 public:
  World() {
    TransportConfig config;
    config.context_id = kTested;
    config.max_payload = kMaxPayload;
    config.tcp_addresses = {"127.0.0.1:1"};
    config.data_port = port_;
    transport_ = std::move(tcp_create(config, receiver_).value());
    secret_ = tcp::DataAddress::decode(transport_->address())->secret;
    const tcp::DataAddress peer{{}, {local_address(listener()).value()}};
    check(!transport_->add_peer(kPeer, peer.encode()), "no peer");
  }
  void step(uint8_t step, FuzzInput& input) {
    if (step == kDial) dial(input.piece());
    if (step == kBytes) write(input.byte(), input.piece());
    if (step == kSend) send(input.byte());
    if (step == kAccept) accept(input.piece());
    if (step == kHangUp && !sockets_.empty()) sockets_.erase(sockets_.begin());
    if (step == kFlush) transport_->begin_flush();
    if (step == kRevoke && !receiver_.open.empty())
      transport_->revoke_payload(kPeer, receiver_.open.begin()->first);
    progress();
  }
  void end() {
    (void)transport_->drained(kUnknown);
    transport_->drop_peer(kUnknown);
    progress();
    transport_->close();
    check(receiver_.open.empty(), "a send does not end");
  }

 private:
  // One listener serves all inputs. What an earlier one has left there is dropped.
  static Fd& listener() {
    static Fd one = std::move(listen_tcp("127.0.0.1", 0).value());
    while (accept_connection(one)) {
    }
    return one;
  }
  void progress() {
    for (int i = 0; i < 3; ++i) transport_->progress();
    (void)transport_->arm();
  }
  // Passes on a connection with this hello. Most inputs would not guess the secret, so the real one
  // is filled in.
  void dial(std::vector<std::byte> hello) {
    if (sockets_.size() == kMostConnections) return;
    if (hello.size() >= secret_.size())
      std::ranges::copy(secret_, hello.end() - static_cast<ptrdiff_t>(secret_.size()));
    std::array<int, 2> ends{};
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "no sockets");
    sockets_.push_back(Fd::open([&] { return ends[0]; }));
    port_->adopt(Stream(Fd::open([&] { return ends[1]; })), hello);
  }
  void write(size_t at, ConstBytes bytes) {
    if (sockets_.empty()) return;
    (void)::send(sockets_[at % sockets_.size()].get(), bytes.data(), bytes.size(),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Sends to the peer, which dials its listener.
  void send(uint8_t size) {
    if (sends_ == kMostSends) return;
    auto& payload = receiver_.open[++sends_];
    payload.resize(size_t{size} * 64);
    transport_->send(kPeer, payload_header_, payload, static_cast<SendId>(sends_));
  }
  // Accepts the transport's connection, and answers with these bytes.
  void accept(ConstBytes answer) {
    Fd accepted = accept_connection(listener_);
    if (!accepted || sockets_.size() == kMostConnections) return;
    const linger reset{1, 0};  // no port stays in TIME_WAIT
    setsockopt(accepted.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    (void)::send(accepted.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    sockets_.push_back(std::move(accepted));
  }

  Receiver receiver_;
  std::shared_ptr<DataPort> port_ = std::make_shared<DataPort>();
  Fd& listener_ = listener();
  const std::vector<std::byte> payload_header_ = std::vector<std::byte>(40);
  DataSecret secret_{};
  std::unique_ptr<Transport> transport_;
  std::vector<Fd> sockets_;
  int sends_ = 0;
};

bool run(ConstBytes bytes) { return run_steps<World>(bytes, kSteps); }

// ---- Seeds

std::vector<std::byte> hello(ContextId from, uint32_t channel) {
  const auto frame = DataHello{from, kTested, channel, 0, {}}.frame();
  return {frame.begin() + 5, frame.end()};  // behind length and type
}

std::vector<std::byte> record(uint64_t number, uint16_t header, uint32_t payload,
                              tcp::RecordKind kind = tcp::RecordKind::kMessage,
                              tcp::Handled handled = {}) {
  tcp::RecordHead head;
  head.number = number;
  head.handled = handled.count;
  head.of_channel = handled.channel;
  head.header_bytes = header;
  head.payload_bytes = payload;
  head.kind = kind;
  auto out = Writer().put(head).take();
  out.resize(head.bytes());
  return out;
}

std::vector<std::byte> count(uint64_t records) { return Writer().put(records).take(); }

FuzzSeeds seeds() {
  FuzzSeed inbound;
  inbound.byte(kDial).piece(hello(kUnknown, 1));
  for (uint64_t number = 0; number < 6; ++number)
    inbound.byte(kBytes).byte(0).piece(record(number, 72, static_cast<uint32_t>(number * 100)));
  inbound.byte(kBytes).byte(0).piece(record(6, 0, 0, tcp::RecordKind::kFlush));
  inbound.byte(kDial).piece(hello(kUnknown, 1)).byte(kBytes).byte(1).piece(record(7, 48, 8));
  inbound.byte(kDial).piece(hello(kUnknown, 2)).byte(kBytes).byte(2).piece(record(0, 48, 8));
  inbound.byte(kDial).piece(hello(kUnknown, 1)).byte(kHangUp);
  FuzzSeed outbound;
  outbound.byte(kSend).byte(1).byte(kSend).byte(100).byte(kAccept).piece(count(0));
  outbound.byte(kBytes).byte(0).piece(count(1)).byte(kSend).byte(80).byte(kRevoke);
  outbound.byte(kBytes).byte(0).piece(count(3)).byte(kFlush).byte(kBytes).byte(0).piece(count(4));
  outbound.byte(kSend).byte(90).byte(kHangUp).byte(kSend).byte(2).byte(kAccept).piece(count(4));
  outbound.byte(kBytes).byte(0).piece(count(99)).byte(kSend).byte(1);
  FuzzSeed invalid;
  invalid.byte(kDial).piece(hello(kUnknown, 1)).byte(kBytes).byte(0).piece(record(1, 72, 0));
  FuzzSeed carried;
  carried.byte(kSend).byte(100).byte(kAccept).piece(count(0)).byte(kDial).piece(hello(kUnknown, 1));
  carried.byte(kBytes).byte(1).piece(record(0, 48, 5000, tcp::RecordKind::kMessage, {1, 1}));
  return {inbound.take(), outbound.take(), invalid.take(), carried.take()};
}

}  // namespace tcp_fuzz

const FuzzTarget kTcpFuzz{"tcp", "csrc/transport/tcp/", tcp_fuzz::run, tcp_fuzz::seeds};

}  // namespace ringdist::test
