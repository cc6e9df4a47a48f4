#include "membership/assembly.h"

#include <algorithm>
#include <future>
#include <utility>

#include "base/log.h"
#include "base/thrown.h"
#include "os/quiet_thread.h"

namespace ringdist {
namespace {

constexpr uint64_t kAssemblyWakeKey = 1;
constexpr uint64_t kFirstKey = 16;
constexpr Duration kTick = Milliseconds(500);
constexpr Duration kLookAgain = Milliseconds(20);
constexpr size_t kMostWithdrawn = 64;
constexpr Duration kTellTime = std::chrono::seconds(1);

}  // namespace

Assembly::Assembly(ProcessId self, const Pace& pace, Sweep sweep)
    : self_(self), pace_(pace), sweep_(std::move(sweep)) {}

void Assembly::enroll(Origin origin, std::shared_ptr<LineageOwner> owner) {
  if (mark_.forked()) return;
  std::lock_guard lock(mutex_);
  const uint64_t nonce = origin.nonce;
  enrolled_.insert_or_assign(nonce, Enrolled{std::move(origin), std::move(owner)});
}

void Assembly::withdraw(uint64_t lineage, bool for_good) {
  if (mark_.forked()) return;
  std::shared_ptr<LineageOwner> owner;
  {
    std::lock_guard lock(mutex_);
    const auto one = enrolled_.find(lineage);
    if (one == enrolled_.end()) return;
    owner = std::move(one->second.owner);
    enrolled_.erase(one);
    if (for_good) left_.insert(lineage);
    withdrawn_.emplace_back(lineage, owner->recipients());
    if (withdrawn_.size() > kMostWithdrawn) withdrawn_.pop_front();
  }
  post([this, lineage](TimePoint) { lineages_.erase(lineage); });
}

Error Assembly::start() {
  if (thread_.joinable() || stopping_) return {};
  auto wake = EventFd::create();
  if (!wake.ok()) return wake.error();
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  if (Error error = epoll.value().add(wake.value().get(), EPOLLIN, kAssemblyWakeKey)) return error;
  epoll_ = std::make_unique<Epoll>(std::move(epoll.value()));
  post_ = std::make_unique<Post>(self_, *epoll_, kFirstKey, static_cast<Post::Owner&>(*this));
  try {
    thread_ = quiet_thread("ringdist-member", [this] { run(); });
  } catch (...) {
    return thrown_error();
  }
  tasks_->open(std::move(wake.value()));
  return {};
}

Error Assembly::begin(uint64_t lineage, uint32_t generation) {
  if (mark_.forked())
    return {ErrorKind::kAborted, "a process forked from one that uses ringdist cannot use it"};
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return {ErrorKind::kAborted, "this process has shut ringdist down"};
    if (!enrolled_.contains(lineage))
      return {ErrorKind::kInvalidArgument, "the group was destroyed"};
    if (Error error = start()) return error.prefixed("membership: ");
  }
  post([this, lineage, generation](TimePoint now) {
    if (Lineage* one = find(lineage)) one->begin_after(generation, now);
  });
  return {};
}

bool Assembly::admits(const Hello& hello) {
  const auto one = enrolled_.find(hello.nonce);
  if (one == enrolled_.end()) return false;
  const auto known = one->second.owner->recipient(hello.from);
  return known || one->second.owner->lets_in();
}

void Assembly::adopt(FrameStream stream, const Hello& hello, LinkKind kind) {
  if (mark_.forked()) return;
  {
    std::lock_guard lock(mutex_);
    if (kind == LinkKind::kTcp && !admits(hello)) return;
    if (start()) {
      unheard_.insert(hello.from);
      return;
    }
  }
  // A function object is copied: a stream is not.
  auto held = std::make_shared<FrameStream>(std::move(stream));
  post([this, held, from = hello.from](TimePoint now) {
    if (post_->adopt(std::move(*held), from, now)) return;
    std::lock_guard lock(mutex_);
    unheard_.insert(from);
  });
}

void Assembly::give_up(ProcessId process) {
  if (mark_.forked()) return;
  {
    std::lock_guard lock(mutex_);
    if (process != self_) given_up_.insert(process);
  }
  post([this, process](TimePoint now) {
    for (auto& [nonce, lineage] : lineages_) lineage->give_up(process, now);
  });
}

std::string Assembly::describe(uint64_t lineage) {
  if (mark_.forked()) return "";
  auto said = std::make_shared<std::promise<std::string>>();
  auto text = said->get_future();
  const bool posted = post([this, lineage, said](TimePoint now) {
    const auto one = lineages_.find(lineage);
    said->set_value(one == lineages_.end() ? "" : one->second->describe(now));
  });
  said.reset();
  if (!posted || text.wait_for(kTellTime) != std::future_status::ready) return "";
  try {
    return text.get();
  } catch (const std::future_error&) {
    return "";
  }
}

void Assembly::stop() {
  if (mark_.forked()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!thread_.joinable()) return;
    tasks_->close();
  }
  thread_.join();
  lineages_.clear();
  post_.reset();
}

// ---- the thread's

// Letters are said again.
template <typename Body>
void Assembly::contain(const Body& body) {
  try {
    body();
  } catch (...) {
    log(LogLevel::kWarn, "membership: " + thrown_error().message());
  }
}

void Assembly::run() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    contain([this] { turn(); });
  }
}

Duration Assembly::sleep() const {
  const TimePoint now = Clock::now();
  TimePoint until = now + kTick;
  for (const auto& [nonce, lineage] : lineages_)
    if (const auto at = lineage->next()) until = std::min(until, *at);
  if (const auto at = post_->next()) until = std::min(until, *at);
  return std::max(until, now) - now;
}

void Assembly::turn() {
  const auto events = epoll_->wait(sleep());
  const TimePoint now = Clock::now();
  for (const Epoll::Event& event : events)
    if (event.key != kAssemblyWakeKey) post_->on_event(event.key, now);
  for (const Tasks::Task& task : tasks_->take()) contain([&] { task(Clock::now()); });
  for (auto& [nonce, lineage] : lineages_) lineage->tick(Clock::now());
  post_->tick(Clock::now());
}

Lineage* Assembly::find(uint64_t nonce) {
  if (const auto known = lineages_.find(nonce); known != lineages_.end())
    return known->second.get();
  std::optional<Enrolled> enrolled;
  std::set<ProcessId> given_up;
  {
    std::lock_guard lock(mutex_);
    if (const auto one = enrolled_.find(nonce); one != enrolled_.end()) enrolled = one->second;
    given_up = given_up_;
  }
  if (!enrolled) return nullptr;
  const auto later = [this, tasks = tasks_, nonce](std::function<void(Lineage&, TimePoint)> task) {
    tasks->post([this, nonce, task = std::move(task)](TimePoint now) {
      if (const auto one = lineages_.find(nonce); one != lineages_.end()) task(*one->second, now);
    });
  };
  auto& lineage = lineages_[nonce];
  lineage = std::make_unique<Lineage>(self_, enrolled->origin, pace_, *post_,
                                      std::move(enrolled->owner), later);
  const TimePoint now = Clock::now();
  for (const ProcessId process : given_up) lineage->give_up(process, now);
  for (const ProcessId process : dead_) lineage->on_death(process, now);
  return lineage.get();
}

void Assembly::on_letter(ProcessId from, ConstBytes letter) {
  const auto read = Letter::decode(letter);
  if (!read) return;
  if (Lineage* one = find(read->lineage)) return one->on_letter(from, *read, Clock::now());
  if (read->kind == Letter::Kind::kAgreement) tell_withdrawn(read->lineage, from);
}

void Assembly::tell_withdrawn(uint64_t lineage, ProcessId to) {
  std::optional<Recipient> known;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [nonce, processes] : withdrawn_)
      if (const auto one = processes.find(to); nonce == lineage && one != processes.end())
        known = one->second;
  }
  const auto letter = Letter{lineage, Letter::Kind::kWithdrawn, {}}.encode();
  if (known) post_->send(*known, lineage, letter, /*certain=*/false, Clock::now());
}

// It counts as dead when all that it said has been read: what it had dialed first.
void Assembly::on_deserted(ProcessId process) {
  sweep_([this, tasks = tasks_, process](bool all) {
    tasks->post([this, process, all](TimePoint) { look_again(process, all); });
  });
}

void Assembly::look_again(ProcessId process, bool all_taken_in) {
  if (!all_taken_in) {
    std::this_thread::sleep_for(kLookAgain);
    return on_deserted(process);
  }
  try {
    post_->take_in(process, Clock::now());
    std::lock_guard lock(mutex_);
    if (unheard_.contains(process)) return;
    dead_.insert(process);
  } catch (...) {
    std::this_thread::sleep_for(kLookAgain);
    on_deserted(process);
    throw;
  }
  for (auto& [nonce, lineage] : lineages_)
    contain([&, one = lineage.get()] { one->on_death(process, Clock::now()); });
}

}  // namespace ringdist
