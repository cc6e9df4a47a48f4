#include "engine/context/context.h"

#include <unistd.h>

#include <algorithm>

#include "base/describe.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/op/message.h"
#include "os/fd.h"
#include "os/host.h"
#include "os/main_thread_stack.h"
#include "os/random.h"

namespace ringdist {
namespace {

constexpr auto kCallbackTime = std::chrono::milliseconds(1000);  // for tasks at shutdown
constexpr auto kProofTime = std::chrono::seconds(2);  // for a peer's control plane to answer
constexpr auto kDumpTime = std::chrono::milliseconds(300);
// Both together are less than the least peer timeout, without the interval of heartbeats.
constexpr auto kSnapshotTime = std::chrono::milliseconds(150);
constexpr auto kSampleTime = std::chrono::milliseconds(50);
constexpr auto kSampled = std::chrono::milliseconds(2500);
constexpr auto kStackTime = std::chrono::milliseconds(100);
// Descriptors per peer: the control connection, the process (pidfd) and its doorbell. A few more
// are needed while connections are made.
constexpr size_t kDescriptorsOfPeer = 3;
constexpr size_t kDescriptorsMeanwhile = 8;
static_assert(static_cast<uint8_t>(FrameType::kDataHello) == DataHello::kFrameType);

}  // namespace

Context::Context(ContextOptions options, std::shared_ptr<const TlsKey> tls_key)
    : options_(std::move(options)),
      id_(tls_key ? tls_key->draw_id() : random_id()),
      tls_key_(std::move(tls_key)) {}

Result<std::shared_ptr<Context>> Context::create(ContextOptions options) {
  set_log_level(options.config.log_level);
  set_log_json(options.config.log_format == "json");
  auto key = read_tls_key(options.config);
  if (!key.ok()) return key.error();
  std::shared_ptr<Context> context(new Context(std::move(options), std::move(key.value())));
  if (Error error = context->start()) return error;
  return context;
}

// The membership service is made before the control plane, which may pass connections to it at
// once.
Error Context::start() {
  host_name_ = host_name();
  auto first = network(options_.store_host);
  if (!first.ok()) return first.error();
  auto progress = ProgressEngine::start(statistics_, config().memory, *this);
  if (!progress.ok()) return progress.error();
  progress_ = std::move(progress.value());
  PaxosTimeouts timeouts;
  timeouts.reply_timeout = peer_timeout();
  assembly_ = std::make_unique<MembershipService>(
      id_, timeouts,
      [this](std::function<void(bool)> then) { control_->drain_connections(std::move(then)); },
      tls_key_);
  auto control = ControlThread::start(id_, config(), first.value().ip, *this, tls_key_);
  if (!control.ok()) return control.error();
  control_ = std::move(control.value());
  std::lock_guard lock(mutex_);
  const std::string address = control_->tcp_address();
  service_ip_ = address.substr(0, address.rfind(':'));
  listens_[first.value().ip] = address;
  return {};
}

Error Context::check_rank(int global_rank) const {
  const Certificate* const own = tls_key_ ? tls_key_->certificate() : nullptr;
  if (own == nullptr || !compares_ranks() || own->allows(global_rank)) return {};
  return Error(ErrorKind::kInvalidArgument,
               "RINGDIST_CERT names " + config().cert + ", which has " + own->describe() +
                   ", and this process is rank " + std::to_string(global_rank) +
                   ": give it a certificate for this rank or for any");
}

Duration Context::peer_timeout() const {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(config().peer_timeout));
}

std::string Context::service_ip() {
  std::lock_guard lock(mutex_);
  return service_ip_;
}

Context::~Context() {
  if (!mark_.forked()) {
    shutdown();
    return;
  }
  // Their threads do not exist in the child.
  [[maybe_unused]] auto* leaked = assembly_.release();
  [[maybe_unused]] auto* leaked_too = control_.release();
}

Result<RankInfo> Context::entry(const Network& network, bool late, const std::string& wanted) {
  std::lock_guard lock(mutex_);
  auto address = listen(network.ip);
  if (!address.ok()) return address.error();
  if (Error error = open_transports(late, wanted, network)) return error;
  if (descriptors_alone_ == 0) descriptors_alone_ = fork_guard::count(fork_guard::Hold());
  auto host = host_key();
  if (!host.ok()) return host.error();
  RankInfo out;
  out.wire_version = kWireVersion;
  out.context_id = id_;
  out.pid = getpid();
  out.host_name = host_name_;
  out.host_key = std::move(host.value());
  out.unix_name = control_->unix_name();
  if (!network.loopback) service_ip_ = address.value().substr(0, address.value().rfind(':'));
  out.tcp_address = std::move(address.value());
  out.guessed = network.guessed;
  out.key = tls_key_ ? tls_key_->fingerprint() : 0;
  for (const auto& [transport, devices] : opened_)
    if (devices.empty() || devices == network.devices)
      out.transports.emplace_back(transport->name(), transport->address());
  return out;
}

// Peers connect as soon as they have our info, so descriptors of those connections count as
// available.
Error Context::room_for(const std::vector<ContextId>& processes) {
  std::lock_guard lock(mutex_);
  auto all = met_;
  all.insert(processes.begin(), processes.end());
  all.erase(id_);
  if (all.size() == met_.size()) return {};
  const fork_guard::Hold hold;  // no descriptor is opened between the two counts
  const size_t ours = fork_guard::count(hold);
  const std::string what = "a process with " + std::to_string(all.size()) + " other" +
                           (all.size() == 1 ? "" : "s") + " of this host in its groups";
  if (Error error = require_descriptors(kDescriptorsOfPeer * all.size() + kDescriptorsMeanwhile,
                                        what, ours - std::min(ours, descriptors_alone_)))
    return error;
  met_ = std::move(all);
  return {};
}

// Takes the first transport of opened_ that both have and that connects their hosts.
Result<Transport*> Context::reach(const RankInfo& peer, bool same_host, const std::string& wanted,
                                  const Network& network) {
  std::lock_guard lock(mutex_);
  for (const auto& [transport, devices] : opened_) {
    if (!devices.empty() && devices != network.devices) continue;
    // Null: the transport to this process.
    const TransportRow* row = ringdist::find_transport(transport->name());
    if (row && ((row->within_host && !same_host) || !is_wanted(wanted, row->name))) continue;
    for (const auto& [name, address] : peer.transports) {
      if (name != transport->name()) continue;
      if (Error error = transport->add_peer(peer.context_id, address)) return error;
      if (transport->reaches(peer.context_id)) return transport;
    }
  }
  return Error(ErrorKind::kPeerLost,
               (wanted.empty() ? "no transport reaches it ("
                               : "transport '" + wanted + "' does not reach it (") +
                   peer.where() + ", " + (same_host ? "this host" : "another host") + ")");
}

void Context::add_leaver(const void* key, GroupCloser leaver) {
  std::lock_guard lock(mutex_);
  leavers_[key] = std::move(leaver);
}

void Context::remove_leaver(const void* key) {
  std::lock_guard lock(mutex_);
  leavers_.erase(key);
}

// The order matters: ops end first, then messages are flushed, then other processes are notified,
// and threads stop last.
void Context::shutdown(bool process_ends) {
  std::map<const void*, GroupCloser> leavers;
  {
    std::lock_guard lock(mutex_);
    if (shut_down_ || mark_.forked()) return;
    shut_down_ = true;
    leavers.swap(leavers_);
  }
  const NoticeKind how = process_ends ? NoticeKind::kExit : NoticeKind::kLeave;
  const TimePoint until = Clock::now() + kFinishTime;
  for (auto& [key, leaver] : leavers) leaver.finish(how, until);
  if (progress_ && control_) {
    // Flushes before it leaves: other ranks compare calls before they receive the notice.
    progress_->flush(Clock::now() + ProgressEngine::kFlushTime);
    // Stops before other processes are notified and begin a new generation, and while this process
    // still listens. A process that does not listen would count as dead in their decision.
    assembly_->stop();
    for (auto& [key, leaver] : leavers) leaver.leave(how);
    // Threads that still wait get an error, as the progress engine is about to end. When the
    // process exits, Futures are not completed: threads that wait for them would return to Python.
    process_ends_ = process_ends;
    progress_->call(
        [this] {
          progress_->dispatcher().fail_all(
              Error(ErrorKind::kAborted, "this process is shutting down"));
        },
        Clock::now() + ProgressEngine::kFlushTime);
    for (auto& [key, leaver] : leavers) leaver.end();
    control_->leave(process_ends);
  }
  pool_.stop(Clock::now() + kCallbackTime);
  if (control_) control_->stop();
  if (progress_) progress_->stop();
}

Error Context::prove_same_host(ContextId process, const std::string& unix_name) {
  if (unix_name.empty() || control_->unix_name().empty())
    return Error(ErrorKind::kNotSupported, "there are no sockets of AF_UNIX");
  return control_->prove_same_host(process, unix_name, Clock::now() + kProofTime);
}

Error Context::lost(ContextId context_id) {
  std::lock_guard lock(mutex_);
  auto it = lost_.find(context_id);
  return it == lost_.end() ? Error() : it->second;
}

Error Context::departed(ContextId context_id) {
  if (Error error = lost(context_id)) return error;
  std::lock_guard lock(mutex_);
  if (!left_.contains(context_id)) return {};
  return {ErrorKind::kPeerLost, "its process has left"};
}

// Runs on the control thread. Messages that the process had sent are read before its loss is
// reported, so that ops which it had completed still succeed.
void Context::on_process_lost(uint64_t context_id, const Error& cause) {
  {
    std::lock_guard lock(mutex_);
    lost_.emplace(context_id, cause);
    met_.erase(context_id);
  }
  assembly_->give_up(context_id);
  progress_->post([this, context_id, cause] {
    const auto tell = [this, context_id, cause] {
      progress_->dispatcher().process_lost(context_id, cause);
    };
    if (context_id == id_) return tell();  // other processes have given this one up
    progress_->drain_peer(context_id, tell);
  });
}

// Runs on the control thread. The other ranks get the error from the progress engine.
void Context::on_control_failed(const Error& cause) {
  progress_->post([this, cause] { progress_->dispatcher().fail_all(cause); });
}

// Runs on the control thread. As above, what the process had sent is read first.
void Context::on_process_left(uint64_t context_id) {
  {
    std::lock_guard lock(mutex_);
    left_.insert(context_id);
    met_.erase(context_id);
  }
  assembly_->give_up(context_id);
  progress_->post([this, context_id] {
    progress_->drain_peer(context_id,
                          [this, context_id] { progress_->dispatcher().process_left(context_id); });
  });
}

void Context::on_flood(uint64_t origin, std::span<const std::byte> payload) {
  auto notice = Notice::decode(payload);
  if (!notice) return;
  notice->from = origin;
  progress_->post([this, notice = *notice] { progress_->dispatcher().on_notice(notice); });
}

bool Context::record(std::shared_ptr<TraceRecorder> recorder) {
  const auto done = std::make_shared<bool>(false);
  const auto task = [this, done, recorder = std::move(recorder)] {
    Dispatcher& dispatcher = progress_->dispatcher();
    *done = recorder == nullptr || dispatcher.recorder() == nullptr;
    if (*done) dispatcher.set_recorder(recorder);
  };
  return progress_->call(task, Clock::now() + kFinishTime) && *done;
}

// The progress engine may answer after the timeout, so the answer is shared with the task.
std::string Context::dump() {
  struct Answer {
    std::string status = "the lane is busy: it did not answer within 300 ms";
    std::string details;
  };
  auto answer = std::make_shared<Answer>();
  const auto ask = [this, answer] {
    *answer = {progress_->dispatcher().status(), progress_->dispatcher().dump()};
  };
  const bool answered = progress_->call(ask, Clock::now() + kDumpTime);
  const Answer& known = answered ? *answer : Answer();
  std::string listens;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [ip, address] : listens_) listens += " " + address;
  }
  return "ringdist: process " + std::to_string(getpid()) + " on " + host_name_ + ": " +
         known.status + "\n  listens at" + listens + "\n" + known.details;
}

// A sample covers a little more than the time since the last one. Calls that both have count once.
std::string Context::sample_calls(Duration paused) {
  auto groups = std::make_shared<std::vector<GroupCalls>>();
  const auto ask = [this, groups] {
    *groups = progress_->dispatcher().calls_since(Clock::now() - kSampled);
  };
  CallSample out;
  if (progress_->call(ask, Clock::now() + kSampleTime)) out.groups = std::move(*groups);
  out.host = host_name_;
  out.place = describe_process(getpid(), host_name_);
  out.links = tcp_links_.read(CallSample::kMostLinks);
  out.paused = paused;
  out.now = Clock::now();
  return out.encode();
}

void Context::on_calls(uint64_t context_id, ConstBytes sample, TimePoint asked, TimePoint now) {
  const auto decoded = CallSample::decode(sample);
  if (!decoded) return;
  stragglers_.learn(context_id, *decoded, asked, now);
  slow_links_.learn(context_id, *decoded);
}

void Context::on_calls_complete(TimePoint now) {
  for (const std::string& line : stragglers_.evaluate(now)) log(LogLevel::kWarn, line);
  for (const std::string& line : slow_links_.evaluate(now)) log(LogLevel::kWarn, line);
}

std::string Context::snapshot(uint8_t request) {
  auto groups = std::make_shared<std::string>();
  auto details = std::make_shared<std::vector<std::pair<std::string_view, std::string>>>();
  const auto ask = [this, groups, details, request] {
    const Dispatcher& dispatcher = progress_->dispatcher();
    *groups = dispatcher.snapshot();
    if ((request & kWithOps) != 0) details->emplace_back("ops", dispatcher.latest_ops());
    if ((request & kWithStatistics) != 0)
      details->emplace_back("statistics", dispatcher.statistics());
  };
  const bool answered = progress_->call(ask, Clock::now() + kSnapshotTime);
  JsonObject out;
  out.add("host", host_name_).add("pid", getpid()).add("context", format_id(id_));
  out.add_json("groups", answered ? *groups : "null");
  if (answered)
    for (const auto& [name, json] : *details) out.add_json(name, json);
  out.add_json("stragglers", stragglers_.json()).add_json("slow_links", slow_links_.json());
  if ((request & kWithStack) != 0) out.add("stack", main_thread_stack(kStackTime));
  return out.text();
}

}  // namespace ringdist
