#include "negotiation/stall/stall_inspector.h"

#include <algorithm>
#include <utility>

namespace ringdist {
namespace {

constexpr int kRoot = 0;
constexpr size_t kNamedCalls = 3;

}  // namespace

StallInspector::StallInspector(StallDelegate& delegate, int rank, int size, Duration warn_after)
    : delegate_(delegate), rank_(rank), size_(size), warn_after_(warn_after), query_(size) {}

void StallInspector::tick(TimePoint now) {
  std::vector<StallDelegate::OpenCall> old = delegate_.open_calls();
  std::erase_if(old, [now](const auto& call) { return now - call.since < kTimeLimit; });
  const auto turns_late = [this, now](const auto& call) { return this->turns_late(call, now); };
  if (old.empty()) {
    interval_ = kTimeLimit;
    next_ask_ = now;
  } else if (asked_ && now - asked_at_ > kAnswerTime) {
    give_up(old, now);
  } else if (now >= next_ask_ || std::ranges::any_of(old, turns_late)) {
    ask(old, now);
  }
  std::erase_if(found_, [&old](const auto& one) {
    return std::ranges::count(old, one.first, &StallDelegate::OpenCall::name) == 0;
  });
  last_look_ = now;
}

// The waiting time has passed a multiple of warn_after_ since the last tick.
bool StallInspector::turns_late(const StallDelegate::OpenCall& call, TimePoint now) const {
  if (warn_after_ <= Duration(0)) return false;
  const TimePoint before = std::max(last_look_, call.since);
  return (now - call.since) / warn_after_ > (before - call.since) / warn_after_;
}

void StallInspector::ask(const std::vector<StallDelegate::OpenCall>& calls, TimePoint now) {
  StallMessage message;
  for (const auto& call : calls) {
    const auto age = std::chrono::duration_cast<Milliseconds>(now - call.since);
    message.calls.push_back({call.name, age.count(), turns_late(call, now)});
  }
  std::ranges::stable_sort(message.calls, std::greater(), &StalledCall::milliseconds);
  message.calls.resize(std::min(message.calls.size(), StallQuery::kNames));
  next_ask_ = now + interval_;
  interval_ = std::min(2 * interval_, kLongest);
  if (!std::exchange(asked_, true)) asked_at_ = now;
  asked_late_ = asked_late_ || std::ranges::any_of(message.calls, &StalledCall::is_late);
  send(kRoot, message, now);
}

void StallInspector::send(int rank, const StallMessage& message, TimePoint now) {
  if (rank == rank_) return obey(rank, message, now);
  delegate_.send_stall(rank, message.encode());
}

Error StallInspector::receive(int rank, ConstBytes bytes, TimePoint now) {
  auto message = StallMessage::decode(bytes);
  if (!message.ok()) return message.error();
  const bool goes_up = message.value().kind == StallMessage::Kind::kAsk ||
                       message.value().kind == StallMessage::Kind::kAnswer;
  if (goes_up != (rank_ == kRoot) || (!goes_up && rank != kRoot))
    return {ErrorKind::kProtocol, "ringdist: negotiation: rank " + std::to_string(rank) +
                                      " says of stalls what is not its part"};
  obey(rank, message.value(), now);
  return {};
}

void StallInspector::obey(int rank, const StallMessage& message, TimePoint now) {
  switch (message.kind) {
    case StallMessage::Kind::kAsk:
      if (answer_at_once(rank, message, now)) return;
      query_.add(message.calls);
      if (query_.is_open() && now - query_.begun() > kAnswerTime / 2) conclude(now);
      if (!query_.is_open() && query_.has_calls()) inquire(now);
      return;
    case StallMessage::Kind::kInquire:
      return send(kRoot, answer_to(message), now);
    case StallMessage::Kind::kAnswer:
      query_.answer(rank, message);
      if (query_.is_open() && query_.all_have_answered()) conclude(now);
      return;
    case StallMessage::Kind::kFound:
      asked_ = asked_again_ = asked_late_ = false;
      for (const StallFinding& one : message.found) found_[one.name] = one.awaits;
      // If another rank's query has covered all calls of this rank, the next query is postponed.
      if (std::ranges::all_of(delegate_.open_calls(), [&](const StallDelegate::OpenCall& call) {
            return now - call.since < kTimeLimit || found_.contains(call.name);
          }))
        next_ask_ = std::max(next_ask_, now + interval_);
      return;
  }
}

void StallInspector::inquire(TimePoint now) {
  query_.begin(now);
  StallMessage message;
  message.kind = StallMessage::Kind::kInquire;
  message.query = query_.number();
  message.names = query_.names();
  for (int rank = size_ - 1; rank >= 0; --rank) send(rank, message, now);
}

StallMessage StallInspector::answer_to(const StallMessage& query) const {
  StallMessage out;
  out.kind = StallMessage::Kind::kAnswer;
  out.query = query.query;
  std::vector<StallDelegate::OpenCall> open = delegate_.open_calls();
  for (size_t i = 0; i < std::min(query.names.size(), StallQuery::kNames); ++i)
    if (std::ranges::count(open, query.names[i], &StallDelegate::OpenCall::name) == 0)
      out.lacks |= uint64_t{1} << i;
  std::ranges::sort(open, {}, &StallDelegate::OpenCall::since);
  for (size_t i = 0; i < open.size() && i < kNamedCalls; ++i)
    out.instead += (i > 0 ? ", '" : "waits for '") + open[i].name + "'";
  if (open.size() > kNamedCalls)
    out.instead += " and " + std::to_string(open.size() - kNamedCalls) + " more";
  out.has_joined = delegate_.has_joined();
  if (open.empty()) {
    const std::string elsewhere = delegate_.elsewhere();
    out.instead = elsewhere.empty() ? "waits for nothing" : "is in " + elsewhere;
  }
  return out;
}

// Several ranks often query the same calls at about the same time.
bool StallInspector::answer_at_once(int rank, const StallMessage& message, TimePoint now) {
  if (closed_ == TimePoint::min() || now - closed_ > kRecent) return false;
  for (const StalledCall& call : message.calls)
    if (call.is_late || std::ranges::count(last_found_, call.name, &StallFinding::name) == 0)
      return false;
  StallMessage found;
  found.kind = StallMessage::Kind::kFound;
  found.found = last_found_;
  send(rank, found, now);
  return true;
}

void StallInspector::conclude(TimePoint now) {
  StallMessage message;
  message.kind = StallMessage::Kind::kFound;
  message.found = query_.close([this](int rank) { return delegate_.describe_rank(rank); });
  closed_ = now;
  last_found_ = message.found;
  warn_of(message.found, now);
  for (int rank = size_ - 1; rank >= 0; --rank) send(rank, message, now);
  if (query_.has_calls()) inquire(now);
}

// Warns once per call and period, because other ranks query the same calls a little later.
void StallInspector::warn_of(const std::vector<StallFinding>& found, TimePoint now) {
  std::erase_if(said_, [&](const auto& one) { return now - one.second >= warn_after_ / 2; });
  bool any_new = false;
  for (const std::string& name : query_.late(found))
    any_new = said_.try_emplace(name, now).second || any_new;
  if (any_new) delegate_.warn(query_.line(found));
}

// Some rank did not answer. After a repeated query, rank 0 reports which one, unless rank 0 itself
// does not answer.
void StallInspector::give_up(const std::vector<StallDelegate::OpenCall>& calls, TimePoint now) {
  asked_ = false;
  if (!std::exchange(asked_again_, true)) return ask(calls, now);
  asked_again_ = false;
  const std::string awaits = delegate_.describe_rank(kRoot) + ", which does not answer";
  for (const auto& call : calls) found_[call.name] = awaits;
  if (std::exchange(asked_late_, false))
    delegate_.warn("'" + calls.front().name + "' waits for " + awaits);
}

std::string StallInspector::awaits(const std::string& name) const {
  const auto found = found_.find(name);
  return found == found_.end() ? "" : found->second;
}

}  // namespace ringdist
