#include "membership/assembly.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <future>
#include <utility>

#include "base/log.h"
#include "base/serialize.h"
#include "base/thrown.h"

namespace ringdist {
namespace {

constexpr uint64_t kWakeKey = 1;
constexpr uint64_t kFirstKey = 16;
constexpr Duration kTick = Milliseconds(500);
constexpr Duration kLookAgain = Milliseconds(20);
constexpr Duration kAnswerTime = std::chrono::seconds(1);

}  // namespace

Assembly::Assembly(ProcessId self, const Pace& pace, Sweep sweep)
    : self_(self), pace_(pace), sweep_(std::move(sweep)) {}

void Assembly::enroll(Origin origin, std::shared_ptr<LineageOwner> owner) {
  if (mark_.forked()) return;
  std::lock_guard lock(mutex_);
  const uint64_t nonce = origin.nonce;
  enrolled_.insert_or_assign(nonce, Enrolled{std::move(origin), std::move(owner)});
}

void Assembly::withdraw(uint64_t lineage) {
  if (mark_.forked()) return;
  {
    std::lock_guard lock(mutex_);
    if (enrolled_.erase(lineage) == 0) return;
  }
  post([this, lineage](TimePoint) { lineages_.erase(lineage); });
}

Error Assembly::start() {
  if (thread_.joinable() || stopping_) return {};
  auto wake = EventFd::create();
  if (!wake.ok()) return wake.error();
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  if (Error error = epoll.value().add(wake.value().get(), EPOLLIN, kWakeKey)) return error;
  epoll_ = std::make_unique<Epoll>(std::move(epoll.value()));
  post_ = std::make_unique<Post>(self_, *epoll_, kFirstKey, static_cast<Post::Owner&>(*this));
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thrown_error();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "ringdist-member");
  tasks_->open(std::move(wake.value()));
  return {};
}

Error Assembly::begin(uint64_t lineage, uint32_t generation) {
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

void Assembly::adopt(FrameStream stream, const Hello& hello) {
  if (mark_.forked()) return;
  {
    std::lock_guard lock(mutex_);
    // Not a word to somebody who cannot show that he belongs here.
    const auto one = enrolled_.find(hello.nonce);
    if (one == enrolled_.end() || start()) return;
  }
  // A function object is copied: a stream is not.
  auto held = std::make_shared<FrameStream>(std::move(stream));
  post([this, held, from = hello.from](TimePoint now) {
    post_->adopt(std::move(*held), from, now);
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
  auto said = std::make_shared<std::promise<std::string>>();
  auto text = said->get_future();
  const bool posted = post([this, lineage, said](TimePoint now) {
    const auto one = lineages_.find(lineage);
    said->set_value(one == lineages_.end() ? "" : one->second->describe(now));
  });
  said.reset();
  if (!posted || text.wait_for(kAnswerTime) != std::future_status::ready) return "";
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

void Assembly::run() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    try {
      turn();
    } catch (...) {  // letters are said again
      log(LogLevel::kWarn, "membership: " + thrown_error().message());
    }
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
    if (event.key != kWakeKey) post_->on_event(event.key, now);
  for (const Tasks::Task& task : tasks_->take()) task(Clock::now());
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
  Reader in(letter);
  const auto nonce = in.get<uint64_t>();
  if (!in.ok()) return;
  if (Lineage* one = find(nonce)) one->on_letter(from, letter.subspan(sizeof nonce), Clock::now());
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
  post_->take_in(process);
  dead_.insert(process);
  for (auto& [nonce, lineage] : lineages_) lineage->on_death(process, Clock::now());
}

}  // namespace ringdist
