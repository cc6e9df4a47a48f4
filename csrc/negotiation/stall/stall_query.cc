#include "negotiation/stall/stall_query.h"

#include <algorithm>

#include "base/check.h"
#include "base/serialize.h"

namespace ringdist {

std::vector<std::byte> StallMessage::encode() const {
  Writer out;
  out.put(kind).put(query).put(lacks).put(static_cast<uint8_t>(has_joined)).put_string(instead);
  out.put(static_cast<uint32_t>(calls.size()));
  for (const StalledCall& one : calls)
    out.put_string(one.name).put(one.milliseconds).put(static_cast<uint8_t>(one.is_late));
  out.put(static_cast<uint32_t>(names.size()));
  for (const std::string& name : names) out.put_string(name);
  out.put(static_cast<uint32_t>(found.size()));
  for (const StallFinding& one : found) out.put_string(one.name).put_string(one.awaits);
  return out.take();
}

Result<StallMessage> StallMessage::decode(ConstBytes bytes) {
  Reader in(bytes);
  StallMessage out;
  out.kind = in.get<Kind>();
  out.query = in.get<uint32_t>();
  out.lacks = in.get<uint64_t>();
  out.has_joined = in.get<uint8_t>() != 0;
  out.instead = in.get_string();
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    StalledCall& one = out.calls.emplace_back();
    one.name = in.get_string();
    one.milliseconds = in.get<int64_t>();
    one.is_late = in.get<uint8_t>() != 0;
  }
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left)
    out.names.push_back(in.get_string());
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    StallFinding& one = out.found.emplace_back();
    one.name = in.get_string();
    one.awaits = in.get_string();
  }
  if (!in.ended() || out.kind > Kind::kFound)
    return Error(ErrorKind::kProtocol, "ringdist: negotiation: a message that cannot be read");
  return out;
}

namespace {

constexpr int kNamed = 4;  // limit of ranks and of names in a line

std::string and_more(size_t count) {
  return count > kNamed ? " and " + std::to_string(count - kNamed) + " more" : "";
}

}  // namespace

void StallQuery::add(const std::vector<StalledCall>& calls) {
  for (const StalledCall& one : calls) {
    const auto now = std::ranges::find(calls_, one.name, &StalledCall::name);
    StalledCall& ours =
        is_open_ && now != calls_.end() ? *now : next_.try_emplace(one.name, one).first->second;
    ours.milliseconds = std::max(ours.milliseconds, one.milliseconds);
    ours.is_late = ours.is_late || one.is_late;
  }
}

void StallQuery::begin(TimePoint now) {
  check(!is_open_, "one inquiry at a time");
  calls_.clear();
  for (; !next_.empty() && calls_.size() < kNames; next_.erase(next_.begin()))
    calls_.push_back(std::move(next_.begin()->second));
  answers_.clear();
  ++number_;
  begun_ = now;
  is_open_ = true;
}

std::vector<std::string> StallQuery::names() const {
  std::vector<std::string> out;
  for (const StalledCall& one : calls_) out.push_back(one.name);
  return out;
}

void StallQuery::answer(int rank, const StallMessage& message) {
  if (is_open_ && message.query == number_)
    answers_.try_emplace(rank, Answer{message.lacks, message.has_joined, message.instead});
}

// Returns text like "rank 2 (pid 7 on host h), which waits for 'y'", or "" if the call waits for no
// rank.
std::string StallQuery::awaited(size_t name,
                                const std::function<std::string(int)>& describe_rank) const {
  std::string out;
  size_t missing = 0;
  bool anybody_has_it = false;
  for (int rank = 0; rank < size_; ++rank) {
    const auto answer = answers_.find(rank);
    const bool is_silent = answer == answers_.end();
    if (!is_silent && (answer->second.lacks >> name & 1) == 0) {
      anybody_has_it = true;
      continue;
    }
    if (!is_silent && answer->second.has_joined) continue;
    if (++missing > kNamed) continue;
    out += (missing > 1 ? "; " : "") + describe_rank(rank) + ", which " +
           (is_silent ? "does not answer" : answer->second.instead);
  }
  // If no rank has the call open, all ranks have run it meanwhile.
  return anybody_has_it ? out + and_more(missing) : "";
}

std::vector<StallFinding> StallQuery::close(const std::function<std::string(int)>& describe_rank) {
  is_open_ = false;
  std::vector<StallFinding> out;
  for (size_t name = 0; name < calls_.size(); ++name)
    if (std::string awaits = awaited(name, describe_rank); !awaits.empty())
      out.push_back({calls_[name].name, std::move(awaits)});
  return out;
}

std::vector<std::string> StallQuery::late(const std::vector<StallFinding>& found) const {
  std::vector<std::string> out;
  for (const StalledCall& call : calls_)
    if (call.is_late && std::ranges::count(found, call.name, &StallFinding::name) > 0)
      out.push_back(call.name);
  return out;
}

std::string StallQuery::line(const std::vector<StallFinding>& found) const {
  std::map<std::string, std::vector<std::string>> by_awaited;
  for (const StallFinding& one : found) {
    const auto call = std::ranges::find(calls_, one.name, &StalledCall::name);
    by_awaited[one.awaits].push_back("'" + one.name + "' (for " +
                                     std::to_string(call->milliseconds / 1000) + " s)");
  }
  std::string out;
  for (const auto& [awaits, names] : by_awaited) {
    if (!out.empty()) out += "; ";
    for (size_t i = 0; i < names.size() && i < kNamed; ++i) out += (i > 0 ? ", " : "") + names[i];
    out += and_more(names.size()) + (names.size() > 1 ? " wait for " : " waits for ") + awaits;
  }
  return out;
}

}  // namespace ringdist
