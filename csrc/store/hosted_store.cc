#include "store/hosted_store.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "os/event_loop.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr uint64_t kListenerKey = 1;  // keys of the epoll set
constexpr uint64_t kStopKey = 2;
constexpr uint64_t kHandshakesKey = 3;
constexpr size_t kMaxUngreeted = 256;  // clients without a hello
constexpr size_t kMaxClients = 16384;
constexpr size_t kMaxHello = 64;  // bytes
constexpr Duration kGreetingTime = std::chrono::seconds(5);
constexpr Duration kAcceptPause = Milliseconds(100);
constexpr Duration kCheckInterval = Milliseconds(50);  // of deadlines
constexpr int kAcceptsAtOnce = 64;
constexpr int kReadsAtOnce = 64;
constexpr size_t kReadBytes = size_t{64} << 10;
constexpr size_t kFrameHead = 5;                    // bytes of a frame beside its body
constexpr size_t kMaxBuffered = size_t{256} << 20;  // bytes of requests and answers of all clients
constexpr Duration kStuckTime = std::chrono::seconds(60);  // for bytes of one to go on
constexpr Duration kLongIdle = std::chrono::seconds(1);    // see make_room()

}  // namespace

Result<std::unique_ptr<HostedStore>> HostedStore::serve(Fd listener,
                                                        std::shared_ptr<const TlsKey> key) {
  auto address = local_address(listener);
  if (!address.ok()) return address.error();
  const int flags = fcntl(listener.get(), F_GETFL);
  if (flags < 0 || fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return system_error("fcntl", errno);
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  auto stop = EventFd::create();
  if (!stop.ok()) return stop.error();
  std::unique_ptr<HostedStore> out(new HostedStore(std::move(listener), std::move(address.value()),
                                                   std::move(epoll.value()),
                                                   std::move(stop.value()), std::move(key)));
  if (Error error = out->start()) return error;
  return out;
}

Error HostedStore::start() {
  if (Error error = epoll_.add(listener_.get(), EPOLLIN, kListenerKey)) return error;
  if (Error error = epoll_.add(stop_.get(), EPOLLIN, kStopKey)) return error;
  if (key_) {
    auto started = Handshakes::start();
    if (!started.ok()) return started.error();
    handshakes_ = std::move(started.value());
    if (Error error = epoll_.add(handshakes_->event_fd(), EPOLLIN, kHandshakesKey)) return error;
  }
  try {
    thread_ = thread_without_signals("ringdist-store", [this] { run(); });
  } catch (...) {
    return current_exception_error();
  }
  return {};
}

// A forked child has neither thread, and the parent's may have been changing what the child got. So
// that is leaked there.
HostedStore::~HostedStore() {
  if (!thread_.joinable()) return;
  if (mark_.forked()) {
    (void)new std::unique_ptr(std::move(handshakes_));
    (void)new std::map(std::move(clients_));
    (void)new StoreTable(std::move(table_));
    thread_.detach();
    return;
  }
  stop();
}

void HostedStore::stop() {
  std::lock_guard lock(stop_mutex_);
  if (mark_.forked() || !thread_.joinable()) return;
  stop_.signal();
  thread_.join();
  handshakes_.reset();
  clients_.clear();
  listener_ = Fd();
}

// An exception, such as lack of memory, costs the client that caused it.
void HostedStore::run() {
  for (;;) {
    for (const Epoll::Event& event : epoll_.wait(time_to_wait())) {
      if (event.key == kStopKey) return;
      try {
        handle(event.key);
      } catch (...) {
        drop(event.key);
      }
    }
    try {
      wake();
      expire();
      resume();
    } catch (...) {  // the next turn goes on
    }
  }
}

void HostedStore::handle(uint64_t key) {
  if (key == kListenerKey) return accept_some();
  if (key == kHandshakesKey) {
    for (Handshakes::Ended& one : handshakes_->take()) add(std::move(one.stream));
  } else if (const auto found = clients_.find(key); found != clients_.end()) {
    if (!advance(key, found->second)) drop(key);
  }
}

bool HostedStore::hold(uint64_t id, Client& client, StoreRequest& request) {
  const bool is_large = request.op == StoreOp::kGet || request.op == StoreOp::kCompareSet;
  if (!is_large || buffered_ <= kMaxBuffered / 2) return false;
  client.held = std::move(request);
  held_.insert(id);
  return true;
}

void HostedStore::resume() {
  while (!held_.empty() && buffered_ <= kMaxBuffered / 2) {
    const uint64_t id = *held_.begin();
    held_.erase(held_.begin());
    Client& client = clients_.at(id);
    StoreRequest request = std::move(*client.held);
    client.held.reset();
    if (const auto result = table_.handle(id, std::move(request))) reply(id, client, *result);
  }
}

Duration HostedStore::time_to_wait() const {
  const bool has_deadlines =
      accepts_again_ || std::ranges::any_of(clients_, [](const auto& one) {
        const Client& client = one.second;
        return !client.is_greeted || client.waits_until || client.has_transfer();
      });
  return has_deadlines ? kCheckInterval : Duration(-1);
}

void HostedStore::accept_some() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Fd fd = accept_connection(listener_);
    if (!fd) {
      if (!exhausted(errno)) return;
      if (drop_idle()) continue;
      epoll_.remove(listener_.get());
      accepts_again_ = Clock::now() + kAcceptPause;
      return;
    }
    notice_dead_peers(fd);
    break_after(fd, std::chrono::ceil<Milliseconds>(kStuckTime).count());
    if (handshakes_)
      handshakes_->add(0, Stream(std::move(fd), key_->accept(kStoreId)));
    else
      add(Stream(std::move(fd)));
  }
}

void HostedStore::add(Stream stream) {
  if (!stream) return;
  make_room();
  const uint64_t id = next_id_++;
  const int fd = stream.fd().get();
  Client& client = clients_.emplace(id, Client{std::move(stream), Clock::now()}).first->second;
  client.reader.set_limit(kMaxHello);
  if (epoll_.add(fd, EPOLLIN, id) || !advance(id, client)) drop(id);
}

void HostedStore::make_room() {
  const auto ungreeted = [](const auto& one) { return !one.second.is_greeted; };
  const auto count = static_cast<size_t>(std::ranges::count_if(clients_, ungreeted));
  if (count >= kMaxUngreeted)
    drop(std::ranges::find_if(clients_, ungreeted)->first);
  else if (clients_.size() >= kMaxClients && !drop_idle())
    drop(clients_.begin()->first);
}

// A client notices before its next request that such a connection has ended, and dials again.
bool HostedStore::drop_idle() {
  const TimePoint now = Clock::now();
  const auto found = std::ranges::find_if(clients_, [&](const auto& one) {
    const Client& client = one.second;
    return client.is_greeted && !client.waits_until && !client.held && !client.has_transfer() &&
           now - client.moved_at > kLongIdle;
  });
  if (found == clients_.end()) return false;
  drop(found->first);
  return true;
}

bool HostedStore::advance(uint64_t id, Client& client) {
  return receive(id, client) && flush(id, client);
}

bool HostedStore::receive(uint64_t id, Client& client) {
  std::array<std::byte, kReadBytes> buffer;
  for (int i = 0; i < kReadsAtOnce || client.stream.has_input(); ++i) {
    const ssize_t got = client.stream.read(buffer);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    client.moved_at = Clock::now();
    client.unread += static_cast<size_t>(got);
    if (!count(got)) return false;
    client.reader.append(ConstBytes(buffer).first(static_cast<size_t>(got)));
    for (;;) {
      const auto frame = client.reader.next();
      if (!frame.ok()) return false;
      if (!frame.value()) break;
      const size_t used = std::min(client.unread, kFrameHead + frame.value()->body.size());
      if (!take(id, client, *frame.value())) return false;
      client.unread -= used;
      (void)count(-static_cast<ptrdiff_t>(used));
    }
    if (client.unread == 0 && client.is_greeted) {  // its memory is not kept
      client.reader = FrameReader();
      client.reader.set_limit(kMaxStoreMessage);
    }
    if (static_cast<size_t>(got) < buffer.size() && !client.stream.has_input()) return true;
  }
  return true;
}

bool HostedStore::count(ptrdiff_t bytes) {
  buffered_ += static_cast<size_t>(bytes);
  return buffered_ <= kMaxBuffered;
}

bool HostedStore::take(uint64_t id, Client& client, const Frame& frame) {
  // A client waits for its answer before it sends another request.
  if (client.waits_until || client.held || !client.out.empty()) return false;
  auto request =
      frame.type == FrameType::kStoreRequest ? StoreRequest::decode(frame.body) : std::nullopt;
  if (!request || client.is_greeted == (request->op == StoreOp::kHello)) return false;
  if (request->op == StoreOp::kHello) {
    if (request->number != StoreRequest::kVersion) {
      (void)answer(client, {.status = StoreAnswer::Status::kRefused,
                            .text = "it speaks another version of torch-ringdist's protocol"});
      return false;
    }
    client.is_greeted = true;
    client.reader.set_limit(kMaxStoreMessage);
    return true;
  }
  if (hold(id, client, *request)) return true;
  const auto limit = Milliseconds(std::clamp<int64_t>(request->number, 0, kLongest.count()));
  if (const auto result = table_.handle(id, std::move(*request))) return answer(client, *result);
  client.waits_until = deadline_after(limit);
  return true;
}

bool HostedStore::answer(Client& client, const StoreAnswer& answer) {
  client.out = answer.frame();
  client.sent = 0;
  if (!count(static_cast<ptrdiff_t>(client.out.size()))) return false;
  return write(client);
}

// The memory of a large answer is not kept.
bool HostedStore::write(Client& client) {
  const ssize_t sent = client.stream.write(ConstBytes(client.out).subspan(client.sent));
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
  if (sent > 0) client.moved_at = Clock::now();
  client.sent += static_cast<size_t>(std::max<ssize_t>(sent, 0));
  if (client.sent < client.out.size()) return true;
  (void)count(-static_cast<ptrdiff_t>(client.out.size()));
  client.out = {};
  return true;
}

bool HostedStore::flush(uint64_t id, Client& client) {
  if (!client.stream.flush()) return false;
  if (!client.out.empty() && !write(client)) return false;
  const bool wants = !client.out.empty() || client.stream.has_output();
  if (wants == std::exchange(client.wants_output, wants)) return true;
  return !epoll_.modify(client.stream.fd().get(), wants ? EPOLLIN | EPOLLOUT : EPOLLIN, id);
}

void HostedStore::wake() {
  for (const uint64_t id : table_.take_ready()) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) continue;
    found->second.waits_until.reset();
    reply(id, found->second, {});
  }
}

void HostedStore::reply(uint64_t id, Client& client, const StoreAnswer& result) {
  try {
    if (answer(client, result) && flush(id, client)) return;
  } catch (...) {  // a lack of memory must not cost the others their answers
  }
  drop(id);
}

void HostedStore::expire() {
  const TimePoint now = Clock::now();
  if (now - checked_at_ < kCheckInterval) return;
  checked_at_ = now;
  if (accepts_again_ && now >= *accepts_again_ &&
      !epoll_.add(listener_.get(), EPOLLIN, kListenerKey))
    accepts_again_.reset();
  for (auto next = clients_.begin(); next != clients_.end();) {
    auto& [id, client] = *next++;  // it may be dropped
    if ((!client.is_greeted && now - client.since > kGreetingTime) ||
        (client.has_transfer() && now - client.moved_at > kStuckTime)) {
      drop(id);
    } else if (client.waits_until && now >= *client.waits_until) {
      client.waits_until.reset();
      table_.end_wait(id);
      reply(id, client, {.status = StoreAnswer::Status::kTimeout});
    }
  }
}

void HostedStore::drop(uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  table_.end_wait(id);
  held_.erase(id);
  (void)count(-static_cast<ptrdiff_t>(found->second.unread + found->second.out.size()));
  epoll_.remove(found->second.stream.fd().get());
  clients_.erase(found);
}

}  // namespace ringdist
