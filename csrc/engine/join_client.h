// JoinClient: lets this process join an existing group as a newcomer. It reads the group's
// advertisement in the store, sends join requests to the members and waits until they have agreed
// on a generation with it. Members do not notice a newcomer that cannot join. One thread only; its
// calls block.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/communicator.h"
#include "engine/membership/group_advertisement.h"

namespace ringdist {

// One attempt of this process to join the group of a job. wait() may be called repeatedly, until it
// has returned a group or an error.
class JoinClient {
 public:
  // `job` selects the advertisement. Of `options` only config, costs, store, store_server and
  // make_runner count; the rest comes from the group. `store` is the unprefixed one.
  JoinClient(std::shared_ptr<Context> context, CommunicatorOptions options, std::string job)
      : context_(std::move(context)), options_(std::move(options)), job_(std::move(job)) {}
  // Stops the join requests if the process has not been admitted.
  ~JoinClient() { leave(); }
  JoinClient(const JoinClient&) = delete;
  JoinClient& operator=(const JoinClient&) = delete;

  // Waits for admission. Returns the group, which is forming, and the result of the join. Returns
  // nothing at `until`; then it may be called again.
  //
  // Errors are final. It fails with kMismatch if options, wire version or costs differ. It fails
  // with kSystem if the store does not work and has not shown a group. It fails with
  // kInvalidArgument if this process was a member before. It fails with kPeerLost if this process
  // was admitted and excluded again.
  std::optional<Result<ShrinkResult>> wait(TimePoint until);
  // Returns why the process has not been admitted yet, as a kTimeout error.
  Error none_yet() const;
  // Returns the advertisement that led to the group. Call it only after wait() has returned a
  // group.
  const GroupAdvertisement& advertisement() const { return *advertisement_; }

 private:
  // Reads the advertisement. Success also if there is none; then the last one is kept. Errors:
  // those of the store, and kProtocol if the value cannot be decoded.
  Error read_advertisement();
  // Reads the advertisement again, at most every 200 ms, and starts or updates the join requests.
  Error refresh();
  // Fills in the rank info of this process, once. Errors: those of Context::network() and
  // Context::entry().
  Error prepare();
  // Stops the join requests.
  void leave();

  const std::shared_ptr<Context> context_;
  CommunicatorOptions options_;
  const std::string job_;
  std::optional<RankInfo> entry_;                    // this process' info
  std::optional<GroupAdvertisement> advertisement_;  // the latest advertisement
  TimePoint read_at_{};
  Error store_error_;                            // result of the last read
  std::shared_ptr<GroupMembership> membership_;  // group that join requests go to
};

}  // namespace ringdist
