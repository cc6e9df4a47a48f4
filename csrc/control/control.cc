#include "control/control.h"

#include "control/control_thread.h"

namespace ringdist {
namespace {

Error in_a_child() {
  return Error(ErrorKind::kNotSupported,
               "a process forked from one that uses ringdist cannot use it");
}

}  // namespace

Result<std::unique_ptr<Control>> Control::start(uint64_t context_id, const Config& config,
                                                std::string local_ip, Events& events) {
  auto loop = ControlThread::create(context_id, config, local_ip, events);
  if (!loop.ok()) return loop.error();
  return std::unique_ptr<Control>(new Control(std::move(loop.value())));
}

Control::Control(std::unique_ptr<ControlThread> loop) : loop_(std::move(loop)) {}

Control::~Control() {
  // In a forked child the thread does not exist and locks may be held for ever: let go of it all.
  if (mark_.forked()) [[maybe_unused]]
    auto* leaked = loop_.release();
}

uint64_t Control::context_id() const { return loop_->id(); }
std::string Control::unix_name() const { return loop_->unix_name(); }
std::string Control::tcp_address() const { return loop_->tcp_address(); }

Result<std::string> Control::listen(const std::string& ip) {
  if (mark_.forked()) return in_a_child();
  return loop_->listen(ip);
}

Error Control::prove_same_host(uint64_t peer_context_id, std::string unix_name,
                               TimePoint deadline) {
  if (mark_.forked()) return in_a_child();
  if (peer_context_id == loop_->id()) return {};
  return loop_->prove(peer_context_id, std::move(unix_name), deadline);
}

Error Control::connect_group(uint64_t nonce, int my_rank, std::vector<Member> members,
                             const CancellableDeadline& deadline) {
  if (mark_.forked()) return in_a_child();
  return loop_->connect(nonce, my_rank, std::move(members), deadline);
}

void Control::disconnect_group(uint64_t nonce, int my_rank) {
  if (!mark_.forked()) loop_->disconnect(nonce, my_rank);
}

void Control::flood(std::vector<std::byte> payload) {
  if (!mark_.forked()) loop_->flood(std::move(payload));
}

void Control::give_up(uint64_t context_id, std::string cause) {
  if (!mark_.forked()) loop_->give_up(context_id, std::move(cause));
}

void Control::drain_connections(std::function<void(bool)> then) {
  if (!mark_.forked()) loop_->drain_connections(std::move(then));
}

void Control::leave(bool process_ends) {
  if (!mark_.forked()) loop_->leave(process_ends);
}

void Control::stop() {
  if (!mark_.forked()) loop_->stop();
}

}  // namespace ringdist
