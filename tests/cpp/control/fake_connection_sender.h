// Fake ConnectionSender: connections without sockets, and a record of the frames sent on them. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/control_connection.h"

namespace ringdist::test {

class FakeConnectionSender final : public ConnectionSender {
 public:
  using State = ControlConnection::State;
  struct Said {
    uint64_t to;
    FrameType type;
    std::vector<std::byte> body;
  };

  ControlConnection& add(uint64_t peer, LinkKind kind = LinkKind::kLocal,
                         State state = State::kOpen) {
    connections.push_back(
        std::make_unique<ControlConnection>(Stream(), kind, true, connections.size(), TimePoint()));
    connections.back()->peer = peer;
    connections.back()->state = state;
    return *connections.back();
  }
  // Returns the processes to which a frame of this type was sent, in order, and clears the record.
  std::vector<uint64_t> take(FrameType type) {
    std::vector<uint64_t> out;
    for (const Said& one : said)
      if (one.type == type) out.push_back(one.to);
    said.clear();
    return out;
  }

  // The following functions implement ConnectionSender.
  void for_each(const std::function<void(ControlConnection&)>& fn) override {
    for (auto& connection : connections)
      if (!connection->closed()) fn(*connection);
  }
  void send(ControlConnection& connection, ConstBytes frame) override {
    FrameReader reader;
    reader.append(frame);
    const auto whole = reader.next();
    const ConstBytes body = whole.value()->body;
    said.push_back({connection.peer, whole.value()->type, {body.begin(), body.end()}});
  }
  void send_to_all(ConstBytes frame, const ControlConnection* except) override {
    for (auto& connection : connections)
      if (connection->open() && connection.get() != except) send(*connection, frame);
  }
  void end_output(ControlConnection& connection) override { ended.insert(connection.peer); }
  void close(ControlConnection& connection) override { connection.state = State::kClosed; }
  void close_after_output(ControlConnection& connection) override {
    connection.state = State::kClosing;
  }
  void stop_listening() override { listening = false; }

  std::vector<std::unique_ptr<ControlConnection>> connections;
  std::vector<Said> said;
  std::set<uint64_t> ended;
  bool listening = true;
};

}  // namespace ringdist::test
