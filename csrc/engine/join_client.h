// A newcomer's way into a group: it reads the invitation, asks the members, and waits until they
// let it in. The others notice nothing of one that cannot come. One thread's, which it blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/communicator.h"
#include "engine/membership/group_advertisement.h"

namespace ringdist {

class JoinClient {
 public:
  // To the group of that job. `options`: config, costs, store, store_home and make_runner count;
  // `store` is the whole one. The rest is the group's.
  JoinClient(std::shared_ptr<Context> context, CommunicatorOptions options, std::string job)
      : context_(std::move(context)), options_(std::move(options)), job_(std::move(job)) {}
  // Who was not let in asks no more.
  ~JoinClient() { leave(); }
  JoinClient(const JoinClient&) = delete;
  JoinClient& operator=(const JoinClient&) = delete;

  // The group, which forms, and who has joined it; nothing: not until then, and it may be called
  // again. Errors, for good: kMismatch, options, wire version or costs differ; kSystem, the store
  // does not work and has not shown a group; kInvalidArgument, this process was a member before;
  // kPeerLost, it was let in and excluded again.
  std::optional<Result<ShrinkResult>> wait(TimePoint until);
  // Why not yet; kTimeout.
  Error none_yet() const;
  // That led to the group, of wait().
  const GroupAdvertisement& invitation() const { return *invitation_; }

 private:
  Error read_invitation();
  // Takes up the latest, if there is one by now.
  Error refresh();
  Error prepare();
  void leave();

  const std::shared_ptr<Context> context_;
  CommunicatorOptions options_;
  const std::string job_;
  std::optional<RankInfo> entry_;  // this process'
  std::optional<GroupAdvertisement> invitation_;
  TimePoint read_at_{};
  Error store_error_;                            // the last
  std::shared_ptr<GroupMembership> membership_;  // of the group that is asked
};

}  // namespace ringdist
