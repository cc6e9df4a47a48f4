// What came for groups of this process that cannot take it: they are not known here yet, or still
// form. It is kept for them, for a while.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/group/notice.h"
#include "engine/group/unexpected_queue.h"

namespace ringdist {

class UnknownGroupMessages {
 public:
  using GroupKey = std::pair<uint64_t, int>;  // nonce, rank: a Context may hold several ranks

  explicit UnknownGroupMessages(std::shared_ptr<ScratchPool> pool) : messages_(std::move(pool)) {}

  // Those of groups that were closed here are dropped; so are more than any group may get.
  void keep(const MessageHeader& header, const Payload& payload, TimePoint now);
  // `any_forming`: a group that was closed for one rank may be that of another.
  void keep(const Notice& notice, bool any_forming);

  // The messages of a group that has formed; they are not kept any longer.
  std::vector<UnexpectedMessage> take(const GroupKey& key) { return messages_.take(key); }
  // Calls it for each notice of that group. They stay, for its other ranks.
  template <typename Each>
  void for_each_notice(uint64_t nonce, const Each& each) const {
    for (const Notice& notice : notices_)
      if (notice.nonce == nonce) each(notice);
  }

  // Nobody waits for what comes for that rank's group.
  void close(const GroupKey& key);
  // Forgets what has been waiting for a minute, unless a group that it may be for still forms.
  void forget_old(bool any_forming, TimePoint now);
  size_t count() const { return messages_.count(); }  // of messages

 private:
  UnexpectedQueue<GroupKey> messages_;
  std::deque<std::pair<TimePoint, GroupKey>> since_;
  std::deque<Notice> notices_;
  std::deque<GroupKey> closed_;  // the last few
};

}  // namespace ringdist
