#include "membership/membership_transport.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ringdist {
namespace {

constexpr Duration kIdleLine = std::chrono::seconds(2);
constexpr Duration kForgottenAfter = std::chrono::seconds(60);

}  // namespace

MembershipTransport::MembershipTransport(ProcessId self, const Epoll& epoll, uint64_t first_key,
                                         Delegate& owner)
    : self_(self), epoll_(epoll), delegate_(owner), next_key_(first_key) {}

OutboundConnection& MembershipTransport::to(const PeerAddress& recipient) {
  auto& line = outgoing_[recipient.process];
  // It may have come to be known that the two share a host.
  if (!line || line->to() != recipient) {
    std::erase_if(keys_, [&](const auto& one) { return one.second == recipient.process; });
    keys_[next_key_] = recipient.process;
    line = std::make_unique<OutboundConnection>(self_, recipient, epoll_, next_key_++);
  }
  return *line;
}

bool MembershipTransport::send(const PeerAddress& recipient, uint64_t group_id, ConstBytes letter,
                               bool certain, TimePoint now) {
  OutboundConnection& line = to(recipient);
  const bool certain_now = line.send(group_id, letter, certain, now);
  update_state(line);
  return certain_now;
}

void MembershipTransport::watch(const PeerAddress& process, uint64_t group_id, TimePoint now) {
  OutboundConnection& line = to(process);
  line.look(group_id, now);
  update_state(line);
}

void MembershipTransport::update_state(OutboundConnection& line) {
  if (line.state() == OutboundConnection::State::kDeserted &&
      told_.insert(line.to().process).second)
    delegate_.on_deserted(line.to().process);
}

bool MembershipTransport::adopt(FramedSocket stream, ProcessId from, TimePoint now) {
  const uint64_t key = next_key_++;
  stream.limit_frames(kMaxFrameBody);
  auto line = std::make_unique<InboundConnection>(std::move(stream), from, now);
  if (epoll_.add(line->stream.fd().get(), EPOLLIN, key)) return false;
  incoming_.emplace(key, std::move(line));
  on_event(key, now);  // some of it may have been read
  return true;
}

// False at its end.
bool MembershipTransport::read(InboundConnection& line, TimePoint now) {
  line.heard_at = now;
  for (;;) {
    for (;;) {
      const auto frame = line.stream.next();
      if (!frame.ok()) return false;
      if (!frame.value()) break;
      if (frame.value()->type != FrameType::kLetter) return false;
      delegate_.on_letter(line.from, frame.value()->body);
    }
    const auto input = line.stream.receive();
    if (input == FramedSocket::Input::kEmpty) return true;
    if (input == FramedSocket::Input::kEnd) return false;
  }
}

void MembershipTransport::take_in(ProcessId from, TimePoint now) {
  std::vector<uint64_t> keys;
  for (const auto& [key, line] : incoming_)
    if (line->from == from) keys.push_back(key);
  for (const uint64_t key : keys) on_event(key, now);
}

void MembershipTransport::on_event(uint64_t key, TimePoint now) {
  if (const auto line = incoming_.find(key); line != incoming_.end()) {
    if (!read(*line->second, now)) close(key);
    return;
  }
  const auto process = keys_.find(key);
  if (process == keys_.end()) return;
  OutboundConnection& line = *outgoing_.at(process->second);
  line.on_event(now);
  update_state(line);
}

void MembershipTransport::close(uint64_t key) {
  const auto line = incoming_.find(key);
  epoll_.remove(line->second->stream.fd().get());
  incoming_.erase(line);
}

std::optional<TimePoint> MembershipTransport::next() const {
  std::optional<TimePoint> out;
  for (const auto& [process, line] : outgoing_)
    if (const auto at = line->next()) out = std::min(out.value_or(*at), *at);
  return out;
}

void MembershipTransport::tick(TimePoint now) {
  // Who vanished with its host does not close it; who lives dials again.
  for (auto line = incoming_.begin(); line != incoming_.end();) {
    const auto next = std::next(line);
    if (now - line->second->heard_at > kForgottenAfter) close(line->first);
    line = next;
  }
  for (auto line = outgoing_.begin(); line != outgoing_.end();) {
    line->second->tick(now);
    update_state(*line->second);
    // One that is deserted stays so.
    const bool idle = line->second->state() != OutboundConnection::State::kDeserted &&
                      now - line->second->used_at() > kIdleLine;
    if (idle) std::erase_if(keys_, [&](const auto& one) { return one.second == line->first; });
    line = idle ? outgoing_.erase(line) : std::next(line);
  }
}

}  // namespace ringdist
