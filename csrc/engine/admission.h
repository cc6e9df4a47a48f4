// A newcomer's way into a group: it reads the invitation, asks the members, and waits until they
// let it in. The others notice nothing of one that cannot come. One thread's, which it blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/communicator.h"
#include "engine/invitation.h"

namespace ringdist {

class Admission {
 public:
  // To the group of that job. `options`: config, costs, store, store_home and make_runner count;
  // `store` is the whole one. The rest is the group's.
  Admission(std::shared_ptr<Context> context, CommunicatorOptions options, std::string job)
      : context_(std::move(context)), options_(std::move(options)), job_(std::move(job)) {}
  // Who was not let in asks no more.
  ~Admission() { leave(); }
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // The group, which forms, and who has joined it; nothing: not until then, and it may be called
  // again. Errors, for good: kMismatch, options, wire version or costs differ; kSystem, the store
  // does not work and has not shown a group; kInvalidArgument, this process was a member before;
  // kPeerLost, it was let in and excluded again.
  std::optional<Result<Shrunk>> wait(TimePoint until);
  // Why not yet; kTimeout.
  Error none_yet() const;
  // That led to the group, of wait().
  const Invitation& invitation() const { return *invitation_; }

 private:
  Error read_invitation();
  // Takes up the latest, if there is one by now.
  Error look();
  Error prepare();
  void leave();

  const std::shared_ptr<Context> context_;
  CommunicatorOptions options_;
  const std::string job_;
  std::optional<Entry> entry_;  // this process'
  std::optional<Invitation> invitation_;
  TimePoint read_at_{};
  Error store_error_;                       // the last
  std::shared_ptr<Succession> succession_;  // of the group that is asked
};

}  // namespace ringdist
