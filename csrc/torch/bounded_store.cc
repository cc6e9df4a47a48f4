#include "torch/bounded_store.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <sstream>
#include <utility>

#include "os/socket.h"
#include "torch/base/errors.h"
#include "torch/torch_store.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

constexpr Milliseconds kListenTime{2000};  // until a listener has answered
// Until c10d's client is ready. It resolves the names of both addresses first. With a DNS server
// that does not answer, this takes 10 s for each, and a client with less time would fail every
// time.
constexpr Milliseconds kOpenTime{30000};
constexpr Milliseconds kPause{200};  // between two attempts of connect()
constexpr size_t kMostDigits = 10;   // counters have no more

// Returns the whole number that the text is; 0 for other texts, which something else has written.
int64_t number_in(ConstBytes bytes) {
  const char* const begin = reinterpret_cast<const char*>(bytes.data());
  const char* const end = begin + bytes.size();
  const bool digits = std::all_of(begin, end, [](char c) { return c >= '0' && c <= '9'; });
  int64_t number = 0;
  if (digits && bytes.size() <= kMostDigits) std::from_chars(begin, end, number);
  return number;
}

Result<std::shared_ptr<Store>> open_client(const std::string& host, uint16_t port) {
  // If no process listens there, c10d's client tries until its time is over.
  if (Error error = check_listener(host, port, kListenTime)) return error;
  try {
    return open_tcp_store(host, port, kOpenTime);
  } catch (const std::exception& e) {
    return Error(ErrorKind::kSystem, e.what());
  }
}

}  // namespace

BoundedStore::BoundedStore(std::string host, uint16_t port, Milliseconds limit,
                           const TlsFiles& files, bool is_hosted)
    : host_(std::move(host)),
      port_(port),
      limit_(limit),
      is_hosted_(is_hosted),
      key_(value_of(read_tls_key(files))) {}

Error BoundedStore::connect(Milliseconds timeout) {
  const TimePoint deadline = deadline_after(timeout);
  for (;;) {
    const auto client = client_until(deadline, timeout);
    if (client.ok()) return {};
    if (client.error().kind() == ErrorKind::kMismatch) return client.error();
    if (Clock::now() + kPause >= deadline) return client.error();
    (void)wait(Clock::now() + kPause, [] { return false; });
  }
}

Error BoundedStore::set(const std::string& key, const std::string& value) {
  return ask<bool>([key, value](Store& store) -> Result<bool> {
           // c10d's client does not wait for an acknowledgement of set(); check() has a reply.
           if (Error error = store.set(key, std::as_bytes(std::span(value)))) return error;
           return store.check({key});
         })
      .error();
}

Result<std::optional<std::string>> BoundedStore::find(const std::string& key) {
  using Found = std::optional<std::string>;
  return ask<Found>([key, has_key = key_ != nullptr](Store& store) -> Result<Found> {
    const auto found = store.find(key);
    if (!found.ok()) return found.error();
    if (!found.value()) return Found();
    const auto& bytes = *found.value();
    if (!has_key && is_sealed(bytes))
      return Error(ErrorKind::kMismatch,
                   "ringdist: the job of this store has a key, and this process has none: give it "
                   "the same file by RINGDIST_KEY_FILE, or a certificate of the same authority");
    return Found(std::in_place, reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
}

Result<int64_t> BoundedStore::add(const std::string& key, int64_t amount) {
  return ask<int64_t>([key, amount](Store& store) { return store.add(key, amount); });
}

Result<int64_t> BoundedStore::count(const std::string& key) {
  const auto read = [key](Store& store) -> Result<int64_t> {
    const auto found = store.find(key);
    if (!found.ok()) return found.error();
    return found.value() ? number_in(*found.value()) : 0;
  };
  return ask<int64_t>(read, /*plain=*/true);
}

Result<std::string> BoundedStore::compare_set(const std::string& key, const std::string& expected,
                                              const std::string& desired) {
  return ask<std::string>([=](Store& store) { return store.compare_set(key, expected, desired); });
}

template <typename T>
Result<T> BoundedStore::ask(const std::function<Result<T>(Store&)>& request, bool plain) {
  const TimePoint deadline = deadline_after(limit_);
  const auto client = client_until(deadline, limit_);
  if (!client.ok()) return client.error();
  const auto answer = std::make_shared<std::optional<Result<T>>>();
  const auto view =
      plain || is_hosted_ ? client.value() : sealed_with(key_, client.value(), /*scope=*/"");
  const auto task = [state = state_, view, answer, request] {
    auto result = request(*view);
    std::lock_guard lock(state->mutex);
    *answer = std::move(result);
    state->changed.notify_all();
  };
  if (Error error = pool_.try_to_run(task)) return silent(error.message(), limit_);
  (void)wait(deadline, [&] { return answer->has_value(); });
  std::lock_guard lock(state_->mutex);
  if (*answer && (*answer)->ok()) return (*answer)->value();
  if (*answer && (*answer)->error().kind() == ErrorKind::kMismatch) return (*answer)->error();
  // The task may still block in this client. Another request may have replaced it already.
  if (state_->client == client.value()) state_->client.reset();
  return silent(*answer ? (*answer)->error().message() : "", limit_);
}

// Returns the open client. If there is none, waits for the attempt in progress, or starts one.
Result<BoundedStore::Client> BoundedStore::client_until(TimePoint deadline, Milliseconds limit) {
  if (mark_.forked()) return silent("this process was forked from the one that opened it", limit);
  std::unique_lock lock(state_->mutex);
  if (state_->client) return state_->client;
  const uint64_t before = state_->openings;
  if (!state_->opening) {
    const auto open = [state = state_, host = host_, port = port_, key = key_,
                       hosted = is_hosted_] {
      auto opened =
          hosted ? open_hosted_store(host, port, key, kOpenTime) : open_client(host, port);
      std::lock_guard lock(state->mutex);
      state->opening = false;
      ++state->openings;
      state->failure = opened.error();
      if (opened.ok()) state->client = opened.value();
      state->changed.notify_all();
    };
    if (Error error = pool_.try_to_run(open)) return silent(error.message(), limit);
    state_->opening = true;
  }
  lock.unlock();
  const bool ended = wait(deadline, [&] { return state_->openings != before; });
  lock.lock();
  if (state_->client) return state_->client;
  if (ended && state_->failure && state_->failure.kind() == ErrorKind::kMismatch)
    return state_->failure;
  return silent(state_->failure ? state_->failure.message() : "", limit);
}

// Returns false at the deadline. `condition` is evaluated under the mutex.
template <typename Condition>
bool BoundedStore::wait(TimePoint deadline, const Condition& condition) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  return wait_in_slices(std::max(left, Milliseconds(0)), [&](std::optional<Milliseconds> part) {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, part.value_or(limit_), condition);
  });
}

Error BoundedStore::silent(const std::string& why, Milliseconds limit) const {
  std::ostringstream out;
  out << "ringdist: the store at " << format_address(host_, port_) << " has ";
  if (why.empty())
    out << "not answered for " << std::chrono::duration<double>(limit).count() << " s";
  else
    out << "failed (" << why << ")";
  out << ": is its host still reached, and its launcher alive?";
  if (!why.empty() && !is_hosted_)
    out << " If that has a key or a certificate, set RINGDIST_KEY_FILE or RINGDIST_CERT, and put "
           "ringdist:// before an address in "
           "RINGDIST_RDZV";
  return Error(ErrorKind::kPeerLost, out.str());
}

}  // namespace ringdist
