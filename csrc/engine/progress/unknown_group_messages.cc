#include "engine/progress/unknown_group_messages.h"

#include <algorithm>
#include <chrono>

namespace ringdist {
namespace {

constexpr Duration kStrayTime = std::chrono::seconds(60);
constexpr size_t kMaxMessages = size_t{1} << 17;  // peers send within their early windows only
constexpr size_t kMaxNotices = 4096;
constexpr size_t kMaxClosed = 1024;

}  // namespace

void UnknownGroupMessages::keep(const MessageHeader& header, const Payload& payload,
                                TimePoint now) {
  const GroupKey key{header.nonce, header.destination};
  if (messages_.count() >= kMaxMessages || std::ranges::count(closed_, key) > 0) return;
  if (messages_.push(key, header, payload)) since_.emplace_back(now, key);
}

void UnknownGroupMessages::keep(const Notice& notice, bool any_forming) {
  const auto of_it = [&](const GroupKey& key) { return key.first == notice.nonce; };
  if (!any_forming && std::ranges::any_of(closed_, of_it)) return;
  notices_.push_back(notice);
  if (notices_.size() > kMaxNotices) notices_.pop_front();
}

void UnknownGroupMessages::close(const GroupKey& key) {
  closed_.push_back(key);
  if (closed_.size() > kMaxClosed) closed_.pop_front();
}

void UnknownGroupMessages::forget_old(bool any_forming, TimePoint now) {
  for (; !any_forming && !since_.empty() && now - since_.front().first > kStrayTime;
       since_.pop_front())
    (void)messages_.take(since_.front().second);
}

}  // namespace ringdist
