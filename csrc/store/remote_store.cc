#include "store/remote_store.h"

#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <span>
#include <utility>

#include "base/describe.h"
#include "control/control_frames.h"
#include "os/socket.h"
#include "rendezvous/rank_info.h"

namespace ringdist {
namespace {

constexpr size_t kMostIdle = 4;               // connections that are kept
constexpr Milliseconds kFirstRetryPause{20};  // between attempts of connect()
constexpr Milliseconds kLongestRetryPause{500};
constexpr Duration kDoubtTime = std::chrono::seconds(2);    // while handshakes fail; see connect()
constexpr Duration kClosedTime = std::chrono::seconds(60);  // while connections are closed
constexpr Duration kAddressTime = std::chrono::seconds(5);  // for each address but the last
constexpr size_t kKeysAtOnce = 64;                          // in one request
constexpr size_t kKeysShown = 4;
constexpr size_t kKeyShown = 200;  // bytes

std::vector<std::byte> copy_of(ConstBytes bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<std::byte> bytes_in(const std::string& text) {
  return copy_of(std::as_bytes(std::span(text)));
}

// Returns the numeric addresses of a host, with the port. May block in the resolver.
std::vector<std::string> addresses_of(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::string> out;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return out;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* one = found; one; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0)
      out.push_back(format_address(text.data(), port));
  }
  return out;
}

// Returns at most `count` of the keys, from the given position.
std::vector<std::string> part_of(const std::vector<std::string>& keys, size_t begin, size_t count) {
  const auto first = keys.begin() + static_cast<ptrdiff_t>(begin);
  return {first, first + static_cast<ptrdiff_t>(std::min(count, keys.size() - begin))};
}

// Returns the names of keys for an error.
std::string shown(const std::vector<std::string>& keys) {
  std::string out;
  for (size_t i = 0; i < std::min(keys.size(), kKeysShown); ++i)
    out += (i == 0 ? "'" : ", '") + printable(keys[i], kKeyShown) + "'";
  if (keys.size() > kKeysShown) out += " or one of " + std::to_string(keys.size()) + " keys";
  return out;
}

Milliseconds left_until(TimePoint deadline) {
  return std::max(std::chrono::ceil<Milliseconds>(deadline - Clock::now()), Milliseconds(0));
}

}  // namespace

RemoteStore::RemoteStore(std::string host, uint16_t port, std::shared_ptr<const TlsKey> key,
                         Waits waits)
    : host_(std::move(host)), port_(port), key_(std::move(key)), waits_(std::move(waits)) {}

// A handshake that fails may be that of a busy store, since handshakes are limited. A connection
// that is only closed proves less: a proxy does that before the store is there.
Error RemoteStore::connect(Milliseconds timeout) {
  const Limit limit{deadline_after(timeout), /*is_interruptible=*/true};
  TimePoint doubtful_since = TimePoint::max();
  Error answered;  // the last error in time; it is worth more than that of the deadline
  for (Milliseconds pause = kFirstRetryPause;; pause = std::min(2 * pause, kLongestRetryPause)) {
    auto stream = connection(limit);
    Error error = stream.error();
    if (stream.ok())
      if (error = ask(stream.value(), {.op = StoreOp::kCount}, limit).error(); !error) {
        std::lock_guard lock(mutex_);
        idle_.push_back(std::move(stream.value()));
        return {};
      }
    const TimePoint now = Clock::now();
    const bool is_closed = error.kind() == ErrorKind::kPeerLost;
    const bool is_there = stream.ok() || !is_closed;
    doubtful_since = is_there ? std::min(doubtful_since, now) : TimePoint::max();
    const Duration patience = is_closed ? kClosedTime : kDoubtTime;
    if (now < limit.deadline) answered = error;
    if (now + pause >= limit.deadline || now - doubtful_since >= patience)
      return answered ? answered : error;
    sleep(pause);
  }
}

void RemoteStore::sleep(Milliseconds pause) const {
  (void)waits_(pause, [](std::optional<Milliseconds> part) {
    (void)poll(nullptr, 0, static_cast<int>(part.value_or(kLongestRetryPause).count()));
    return false;
  });
}

Error RemoteStore::set(const std::string& key, std::span<const std::byte> value) {
  return ask({.op = StoreOp::kSet, .keys = {key}, .values = {copy_of(value)}}).error();
}

// The store refuses values that are too large for one answer. They are requested in parts then.
Result<std::vector<std::vector<std::byte>>> RemoteStore::multi_get(
    const std::vector<std::string>& keys) {
  std::vector<std::vector<std::byte>> out;
  size_t at_once = kKeysAtOnce;
  while (out.size() < keys.size()) {
    const auto part = part_of(keys, out.size(), at_once);
    auto answer = ask({.op = StoreOp::kGet, .keys = part});
    if (!answer.ok() && answer.error().kind() == ErrorKind::kInvalidArgument && part.size() > 1) {
      at_once = part.size() / 2;
      continue;
    }
    if (!answer.ok()) return answer.error();
    if (answer.value().status == StoreAnswer::Status::kMissing)
      return Error(ErrorKind::kInvalidArgument, "ringdist: the store at " +
                                                    format_address(host_, port_) +
                                                    " does not have " + shown(part));
    if (answer.value().values.size() != part.size()) return failed("it sent another answer");
    std::ranges::move(answer.value().values, std::back_inserter(out));
  }
  return out;
}

Result<int64_t> RemoteStore::add(const std::string& key, int64_t amount) {
  const auto answer = ask({.op = StoreOp::kAdd, .number = amount, .keys = {key}});
  return answer.ok() ? Result(answer.value().number) : answer.error();
}

Result<std::string> RemoteStore::compare_set(const std::string& key, const std::string& expected,
                                             const std::string& desired) {
  const auto answer = ask({.op = StoreOp::kCompareSet,
                           .keys = {key},
                           .values = {bytes_in(expected), bytes_in(desired)}});
  if (!answer.ok()) return answer.error();
  if (answer.value().values.size() != 1) return failed("it sent another answer");
  const auto& there = answer.value().values[0];
  return std::string(reinterpret_cast<const char*>(there.data()), there.size());
}

Result<bool> RemoteStore::check(const std::vector<std::string>& keys) {
  const auto answer = ask({.op = StoreOp::kCheck, .keys = keys});
  return answer.ok() ? Result(answer.value().number != 0) : answer.error();
}

Result<bool> RemoteStore::erase(const std::string& key) {
  const auto answer = ask({.op = StoreOp::kRemove, .keys = {key}});
  return answer.ok() ? Result(answer.value().number != 0) : answer.error();
}

Result<int64_t> RemoteStore::count() {
  const auto answer = ask({.op = StoreOp::kCount});
  return answer.ok() ? Result(answer.value().number) : answer.error();
}

Error RemoteStore::append(const std::string& key, ConstBytes value) {
  return ask({.op = StoreOp::kAppend, .keys = {key}, .values = {copy_of(value)}}).error();
}

Error RemoteStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  const Milliseconds time = std::min(timeout, kLongest);
  const TimePoint deadline = deadline_after(time);
  // In parts, since the store bounds the keys that are waited for.
  for (size_t done = 0; done < keys.size(); done += kKeysAtOnce) {
    const auto part = part_of(keys, done, kKeysAtOnce);
    const Milliseconds left = std::min(time, left_until(deadline));
    const auto answer =
        ask({.op = StoreOp::kWait, .number = left.count(), .keys = part}, left + kAnswerTime);
    if (!answer.ok()) return answer.error();
    if (answer.value().status != StoreAnswer::Status::kDone)
      return Error(ErrorKind::kTimeout, "ringdist: the store at " + format_address(host_, port_) +
                                            " had no value of " + shown(part) + " after " +
                                            std::to_string(time.count()) + " ms");
  }
  return {};
}

Result<StoreAnswer> RemoteStore::ask(const StoreRequest& request, Milliseconds time) {
  const Limit limit{deadline_after(time), request.op == StoreOp::kWait};
  auto stream = connection(limit);
  if (!stream.ok()) return stream.error();
  auto answer = ask(stream.value(), request, limit);
  if (!answer.ok()) return answer;
  std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(stream.value()));
  return answer;
}

Result<StoreAnswer> RemoteStore::ask(Stream& stream, const StoreRequest& request,
                                     const Limit& limit) const {
  if (request.keys.size() > kMaxStoreKeys)
    return Error(ErrorKind::kInvalidArgument,
                 "ringdist: the store takes requests of at most " + std::to_string(kMaxStoreKeys) +
                     " keys, and this one has " + std::to_string(request.keys.size()));
  const auto bytes = request.frame();
  if (bytes.size() > kMaxStoreMessage)
    return Error(ErrorKind::kInvalidArgument, "ringdist: the store takes requests of at most " +
                                                  std::to_string(kMaxStoreMessage >> 20) +
                                                  " MiB, and this one has " +
                                                  std::to_string(bytes.size()) + " bytes");
  if (Error error = send(stream, bytes, limit)) return error;
  FrameReader reader;
  reader.set_limit(kMaxStoreMessage);
  std::array<std::byte, size_t{64} << 10> buffer;
  for (;;) {
    const auto frame = reader.next();
    if (!frame.ok())
      return Error(ErrorKind::kMismatch, "ringdist: " + format_address(host_, port_) +
                                             " answers as no store without a key does: check the "
                                             "address, and set RINGDIST_KEY_FILE or "
                                             "RINGDIST_CERT if the job of the store does");
    if (frame.value()) {
      auto answer = frame.value()->type == FrameType::kStoreAnswer
                        ? StoreAnswer::decode(frame.value()->body)
                        : std::nullopt;
      if (!answer) return failed("it sent unknown bytes");
      if (answer->status != StoreAnswer::Status::kRefused) return std::move(*answer);
      return Error(ErrorKind::kInvalidArgument,
                   "ringdist: the store at " + format_address(host_, port_) + ": " + answer->text);
    }
    const ssize_t got = stream.read(buffer);
    if (got > 0) {
      reader.append(ConstBytes(buffer).first(static_cast<size_t>(got)));
    } else if (got == 0 || errno != EAGAIN) {
      return broken(stream, got == 0 ? 0 : errno);
    } else if (!await(stream, stream.events(), limit)) {
      return failed("it did not answer in time");
    }
  }
}

Result<Stream> RemoteStore::connection(const Limit& limit) {
  if (mark_.forked()) return failed("this process was forked from the one that opened it");
  {
    std::lock_guard lock(mutex_);
    while (!idle_.empty()) {
      Stream out = std::move(idle_.back());
      idle_.pop_back();
      // A connection with input at this time has ended.
      pollfd entry{out.fd().get(), POLLIN, 0};
      if (poll(&entry, 1, 0) == 0) return out;
    }
  }
  // A handshake that has failed is repeated, since no request was sent.
  const TimePoint until = std::min(limit.deadline, Clock::now() + kDoubtTime);
  for (;;) {
    auto stream = dial_any(limit);
    if (stream.ok() || stream.error().kind() != ErrorKind::kMismatch || Clock::now() >= until)
      return stream;
    sleep(kFirstRetryPause);
  }
}

Result<Stream> RemoteStore::dial_any(const Limit& limit) {
  Error last;
  const auto dials = [&](const std::string& address, bool is_last) {
    Limit own = limit;
    if (!is_last) own.deadline = std::min(own.deadline, Clock::now() + kAddressTime);
    auto stream = dial(address, own);
    // The error of a store with another key is worth more than that of an unused address.
    if (!stream.ok() && (!last || last.kind() != ErrorKind::kMismatch)) last = stream.error();
    return stream;
  };
  std::string proven;
  {
    std::lock_guard lock(mutex_);
    proven = address_;
  }
  if (!proven.empty())
    if (auto stream = dials(proven, false); stream.ok()) return stream;
  const auto addresses = addresses_of(host_, port_);
  if (addresses.empty() && !last) return failed("its host name does not resolve");
  for (const std::string& address : addresses) {
    auto stream = dials(address, &address == &addresses.back());
    if (!stream.ok()) continue;
    std::lock_guard lock(mutex_);
    address_ = address;
    return stream;
  }
  return last;
}

Result<Stream> RemoteStore::dial(const std::string& address, const Limit& limit) const {
  ConnectAttempt attempt = connect_tcp(address);
  if (attempt.failure) return failed(attempt.failure->error.message());
  Stream out(std::move(attempt.fd), key_ ? key_->dial(key_->draw_id(), kStoreId) : nullptr);
  notice_dead_peers(out.fd());
  break_after(out.fd(), kAnswerTime.count());
  bool connecting = attempt.pending;
  for (;;) {
    if (connecting && !await(out, POLLOUT, limit)) return failed("it did not answer in time");
    const int problem = out.establish();
    if (problem == 0) break;
    if (problem != EAGAIN && (connecting || !key_)) return failed(out.describe(problem));
    if (problem != EAGAIN)
      return Error(ErrorKind::kMismatch, "ringdist: the store at " + address +
                                             " did not prove that it has the key or " +
                                             "authority of this process (" + out.describe(problem) +
                                             "): " + std::string(kSameCredentials));
    connecting = false;
    if (!await(out, out.events(), limit))
      return failed(
          "it did not begin TLS in time; does its process have a key or a certificate, too?");
  }
  const StoreRequest hello{.op = StoreOp::kHello, .number = StoreRequest::kVersion};
  if (Error error = send(out, hello.frame(), limit)) return error;
  return out;
}

Error RemoteStore::send(Stream& stream, ConstBytes bytes, const Limit& limit) const {
  while (!bytes.empty() || stream.has_output()) {
    if (!stream.flush()) return broken(stream, errno);
    const ssize_t sent = bytes.empty() ? 0 : stream.write(bytes);
    if (sent < 0 && errno != EAGAIN) return broken(stream, errno);
    if (sent > 0) bytes = bytes.subspan(static_cast<size_t>(sent));
    if ((sent < 0 || stream.has_output()) && !await(stream, POLLOUT, limit))
      return failed("it did not answer in time");
  }
  return {};
}

bool RemoteStore::await(const Stream& stream, uint32_t events, const Limit& limit) const {
  const short waits_for = static_cast<short>(((events & POLLIN) != 0 ? POLLIN : 0) |
                                             ((events & POLLOUT) != 0 ? POLLOUT : 0));
  const auto wait = [&](std::optional<Milliseconds> part) {
    pollfd entry{stream.fd().get(), waits_for, 0};
    // Signals do not prolong a part, since their handlers run after it.
    const TimePoint end = deadline_after(part);
    for (;;) {
      const int64_t time = part ? std::min<int64_t>(left_until(end).count(), 1 << 30) : -1;
      const int ready = poll(&entry, 1, static_cast<int>(time));
      if (ready >= 0 || errno != EINTR) return ready != 0;
      if (Clock::now() >= end) return false;
    }
  };
  const Milliseconds left = left_until(limit.deadline);
  return limit.is_interruptible ? waits_(left, wait) : wait(left);
}

// The store may close a connection before or after it has read from it. It checks the certificate
// of this process after the handshake has ended on this side.
Error RemoteStore::broken(const Stream& stream, int errno_value) const {
  if (errno_value == EPROTO && key_)
    return Error(ErrorKind::kMismatch, "ringdist: the store at " + format_address(host_, port_) +
                                           " has ended TLS (" + stream.describe(errno_value) +
                                           "): " + std::string(kSameCredentials));
  if (errno_value != 0 && errno_value != EPIPE && errno_value != ECONNRESET)
    return failed(stream.describe(errno_value));
  return failed(
      std::string("it closed the connection") +
      (key_ ? ""
            : "; if its job has a key, set RINGDIST_KEY_FILE, or for certificates RINGDIST_CERT"));
}

Error RemoteStore::failed(const std::string& why) const {
  return Error(ErrorKind::kPeerLost,
               "ringdist: the store at " + format_address(host_, port_) + " has failed: " + why);
}

}  // namespace ringdist
