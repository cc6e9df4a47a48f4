#include "control/control_thread.h"

#include <unistd.h>

#include <utility>

#include "base/log.h"
#include "os/event_loop.h"

namespace ringdist {
namespace {

constexpr uint64_t kWakeKey = 1;
constexpr uint64_t kSignalKey = 2;
constexpr auto kRetry = Milliseconds(5);  // pause between attempts to notify the delegate
constexpr auto kHandOverTime = std::chrono::seconds(1);  // limit of disconnect_group()

// Returns the error of every call in a forked child.
Error in_a_child() {
  return Error(ErrorKind::kNotSupported,
               "a process forked from one that uses ringdist cannot use it");
}

}  // namespace

ControlThread::ControlThread(uint64_t id, const Config& config, ControlDelegate& events,
                             Epoll epoll, EventFd wake, EventFd signalled,
                             std::shared_ptr<const TlsKey> tls_key)
    : ports_(config.ports()),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      signalled_(std::move(signalled)),
      events_(events),
      plane_(id, config, events, epoll_, std::move(tls_key)) {}

Result<std::unique_ptr<ControlThread>> ControlThread::start(uint64_t context_id,
                                                            const Config& config,
                                                            const std::string& local_ip,
                                                            ControlDelegate& events,
                                                            std::shared_ptr<const TlsKey> tls_key) {
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  auto wake = EventFd::create();
  if (!wake.ok()) return wake.error();
  auto signalled = EventFd::create();
  if (!signalled.ok()) return signalled.error();
  std::unique_ptr<ControlThread> out(
      new ControlThread(context_id, config, events, std::move(epoll.value()),
                        std::move(wake.value()), std::move(signalled.value()), std::move(tls_key)));
  if (Error e = out->open(local_ip)) return e.prefixed("control plane: ");
  return out;
}

Error ControlThread::open(const std::string& local_ip) {
  if (Error e = plane_.listen(local_ip)) return e;
  if (Error e = epoll_.add(wake_.get(), EPOLLIN, kWakeKey)) return e;
  if (Error e = epoll_.add(signalled_.get(), EPOLLIN, kSignalKey)) return e;
  signal_watch_ = SignalWatch::on_sigusr1(signalled_);
  try {
    thread_ = thread_without_signals("ringdist-ctl", [this] { run(); });
  } catch (...) {
    return current_exception_error();
  }
  return {};
}

// A process that dials before the control thread has the socket waits in the kernel's queue.
Result<std::string> ControlThread::listen(const std::string& ip) {
  if (mark_.forked()) return in_a_child();
  auto tcp = listen_tcp(ip, ports_.first, ports_.last);
  if (!tcp.ok()) return tcp.error().prefixed("control plane: ");
  auto address = local_address(tcp.value());
  auto held = std::make_shared<Fd>(std::move(tcp.value()));
  (void)post([this, held] { plane_.add_listener(std::move(*held)); });
  return address;
}

void ControlThread::run() {
  try {
    while (!stopping_.load(std::memory_order_acquire)) turn();
    finish();
  } catch (...) {
    fail(current_exception_error());
  }
}

void ControlThread::turn() {
  const auto events = epoll_.wait(plane_.next_sleep());
  plane_.begin_turn(Clock::now());
  for (const Epoll::Event& event : events) handle(event);
  for (const auto& command : take_commands(/*last=*/false)) command();
  plane_.end_turn();
}

void ControlThread::handle(const Epoll::Event& event) {
  if (event.key == kWakeKey) {
    wake_.drain();
  } else if (event.key == kSignalKey) {
    // A signal that comes while a report is being written is covered by that report.
    if (signalled_.drain() && !report_.busy())
      report_.write(log_prefix() + " asked by SIGUSR1:\n" + plane_.report());
  } else {
    plane_.on_event(event);
  }
}

void ControlThread::finish() {
  for (const auto& command : take_commands(/*last=*/true)) command();
  plane_.end();
}

// The promises of commands that are dropped here break, so their callers do not wait.
void ControlThread::fail(const Error& cause) noexcept {
  do {
    try {
      (void)take_commands(/*last=*/true);
      const Error error = cause.prefixed("the control plane of this process has failed: ");
      log(LogLevel::kError, error.message());
      plane_.abort("its control plane has failed: " + cause.message());
      return events_.on_control_failed(error);
    } catch (...) {  // memory may still be lacking, and the delegate must be notified
      std::this_thread::sleep_for(kRetry);
    }
  } while (!stopping_.load(std::memory_order_acquire));
}

bool ControlThread::post(std::function<void()> command) {
  if (mark_.forked()) return false;
  {
    std::lock_guard lock(mutex_);
    if (finished_) return false;
    commands_.push_back(std::move(command));
  }
  wake_.signal();
  return true;
}

std::vector<std::function<void()>> ControlThread::take_commands(bool last) {
  std::lock_guard lock(mutex_);
  finished_ |= last;
  return std::exchange(commands_, {});
}

Error ControlThread::ask(ControlRequest request, std::function<void(const ControlRequest&)> begin) {
  if (mark_.forked()) return in_a_child();
  if (std::this_thread::get_id() == thread_.get_id())
    return Error(ErrorKind::kInvalidArgument, "a blocking call on the control thread");
  request.answer = std::make_shared<std::promise<Error>>();
  auto answer = request.answer->get_future();
  const bool posted = post([request, begin = std::move(begin)] { begin(request); });
  request.answer.reset();  // the command has the only reference, so its end breaks the promise
  if (!posted) return ControlRequests::stopped();
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return ControlRequests::stopped();
  }
}

Error ControlThread::prove_same_host(uint64_t peer_context_id, std::string unix_name,
                                     TimePoint deadline) {
  if (peer_context_id == context_id()) return {};
  const CancellableDeadline cancellable(deadline);
  return ask({ControlRequest::Kind::kProof, peer_context_id, &cancellable, nullptr},
             [this, name = std::move(unix_name)](const ControlRequest& request) {
               plane_.prove(request, name);
             });
}

Error ControlThread::connect_group(uint64_t nonce, int my_rank, std::vector<ControlMember> members,
                                   const CancellableDeadline& deadline) {
  return ask({ControlRequest::Kind::kGroup, nonce, &deadline, nullptr},
             [this, my_rank, members = std::move(members)](const ControlRequest& request) {
               plane_.connect(request, my_rank, members);
             });
}

void ControlThread::disconnect_group(uint64_t nonce, int my_rank) {
  auto done = std::make_shared<std::promise<void>>();
  auto ran = done->get_future();
  const bool posted = post([this, nonce, my_rank, done] {
    plane_.disconnect(nonce, my_rank);
    done->set_value();
  });
  done.reset();  // if the command throws, its promise breaks and the wait below ends
  if (posted && std::this_thread::get_id() != thread_.get_id()) ran.wait_for(kHandOverTime);
}

void ControlThread::flood(std::vector<std::byte> payload) {
  post([this, payload = std::move(payload)] { plane_.flood(payload); });
}

void ControlThread::give_up(uint64_t context_id, std::string cause) {
  post([this, context_id, cause = std::move(cause)] { plane_.give_up(context_id, cause); });
}

void ControlThread::drain_connections(std::function<void(bool)> then) {
  post([this, then = std::move(then)] { then(plane_.drain_connections()); });
}

void ControlThread::leave(bool process_ends) {
  auto done = std::make_shared<std::promise<Error>>();
  auto said = done->get_future();
  const bool posted = post([this, process_ends, done] { plane_.leave(process_ends, done); });
  done.reset();  // if the command throws, its promise breaks and the wait below ends
  if (posted) said.wait();
}

// The thread may wait without events, so it is woken. Only the first call finds a thread to join.
void ControlThread::stop() {
  if (mark_.forked()) return;
  std::lock_guard lock(join_mutex_);
  stopping_.store(true, std::memory_order_release);
  wake_.signal();
  if (thread_.joinable()) thread_.join();
  plane_.end_handshakes();
  signal_watch_.reset();
}

}  // namespace ringdist
