// One rank's part in a negotiation, which runs on a lane. It has the open calls, a Negotiator that
// agrees with other ranks on the order, and the ops of agreed calls. Messages travel in a duplicate
// of the group that runs the ops.
//
// All functions must be called while the lane's progress lock is held.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "engine/communicator.h"
#include "engine/group/group_service.h"
#include "engine/op/op.h"
#include "negotiation/call_content.h"
#include "negotiation/call_timeline.h"
#include "negotiation/named_call.h"
#include "negotiation/order/negotiator.h"
#include "negotiation/stall/stall_inspector.h"

namespace ringdist {

// Starts agreed ops on devices, in the agreed order. A thread of the pool does it, because the
// first op on a device waits for other ranks, and a lane must not wait. The ops have a group of
// their own, because an op gets its number when it is started.
class DeviceQueue : public std::enable_shared_from_this<DeviceQueue> {
 public:
  // The ops run in a duplicate of `group`, which is created for the first op. If the duplicate
  // fails, `group` fails, too.
  explicit DeviceQueue(std::shared_ptr<Communicator> group) : group_(std::move(group)) {}
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  // Queues ops on devices. Returns quickly, and must be called with the lane's progress lock held.
  // Each `on_end` is called once with that lock held, even if the op could not be started. After an
  // Error, none is called.
  Error add(std::vector<OpRequest> requests);

 private:
  // Starts queued ops until there are none.
  void start_all();
  // Starts one op.
  void start(OpRequest request);
  // Returns the duplicate, and creates it at the first call.
  Result<std::shared_ptr<Communicator>> devices();

  const std::shared_ptr<Communicator> group_;
  std::shared_ptr<Communicator> devices_;  // used by the starting thread only
  std::mutex mutex_;
  std::deque<OpRequest> waiting_ RINGDIST_GUARDED_BY(mutex_);
  bool is_starting_ RINGDIST_GUARDED_BY(mutex_) = false;
};

// Options of a negotiation; those of the order must be the same on all ranks.
struct NegotiationOptions {
  NegotiatorOptions order;
  Duration warn_after = std::chrono::seconds(60);  // see StallInspector
};

// Runs calls from their submission to their end.
class NegotiationController final : public GroupService,
                                    private NegotiatorDelegate,
                                    private StallDelegate,
                                    public std::enable_shared_from_this<NegotiationController> {
 public:
  // An open call, and the op that its caller waits for.
  struct PendingCall {
    NamedCall call;
    std::shared_ptr<Op> end;
  };
  // A join. Its op ends when all ranks have joined.
  struct Join {
    std::shared_ptr<Op> end;
    std::shared_ptr<int> last;  // the rank that joined last; valid once `end` has ended
    FillOnDevice on_device;     // allocates memory for calls of other ranks
  };

  // `group` runs the ops.
  NegotiationController(std::shared_ptr<Communicator> group, NegotiationOptions options);

  // Makes a call. No other call of its name may be open on this rank. After the end of the group,
  // the call ends with an error.
  void call(PendingCall open);
  // Joins. This rank must make no calls until the join has ended.
  void join(Join join);
  // See Negotiator::tune(). Has no effect before begin().
  void tune(int64_t fusion_bytes, int batches_in_flight) {
    if (negotiator_) negotiator_->tune(fusion_bytes, batches_in_flight);
    end_if_broken();
  }
  // See CallTimeline. During bootstrap of the group, an error is only logged as a warning.
  Error start_timeline(const std::string& path, bool marks_cycles);
  void stop_timeline(std::shared_ptr<Op> end);
  // Ends open calls with kAborted, and later ones, too.
  void close();
  // Returns true if no call is open, no batch runs, this rank has not joined, and rank 0 has this
  // rank's recording.
  bool idle() const {
    return waiting_.empty() && open_.empty() && !join_ && running_ == 0 &&
           !(timeline_ && timeline_->is_busy());
  }

  // GroupService, for messages and events of the duplicate.
  void begin(GroupServiceDelegate& post) override;
  Error on_service_message(int rank, ConstBytes message) override;
  Error tick(TimePoint now) override;
  void end(const Error& cause) noexcept override;
  std::pair<TimePoint, std::string> waiting_for() const override;
  std::string dump() const override;

 private:
  // NegotiatorDelegate
  void send(int rank, std::vector<std::byte> message) override;
  void run(const std::vector<ResponseCache::AgreedCall>& batch) override;
  void fail(const std::string& name, const std::string& why) override;
  void all_joined(int last) override;
  std::string describe_difference(const CallDescription& one,
                                  const CallDescription& other) const override {
    return first_tensor_difference(one.content, other.content);
  }

  // StallDelegate
  void send_stall(int rank, std::vector<std::byte> message) override;
  std::string describe_rank(int rank) const override { return post_->describe_rank(rank); }
  std::vector<OpenCall> open_calls() const override;
  bool has_joined() const override { return join_.has_value(); }
  std::string elsewhere() const override;
  void warn(const std::string& text) override;

  // Receiver of a message. It is the last byte of the message. Other values count as kOrder.
  enum class MessageKind : uint8_t { kOrder, kStall, kTimeline };
  void post(MessageKind kind, int rank, std::vector<std::byte> message);

  // Returns the ranks that a call waits for, in words.
  std::string awaited(const std::string& name) const;
  // Passes a call to the negotiator.
  void make(PendingCall open);
  // Starts the ops of a batch.
  Error start(const std::vector<ResponseCache::AgreedCall>& calls,
              const std::shared_ptr<FusedCalls>& batch);
  // Adds this rank's part of each call to the batch.
  Error prepare(const std::vector<ResponseCache::AgreedCall>& calls, FusedCalls& batch);
  // Called when an op of the batch has ended.
  void ended(const std::shared_ptr<FusedCalls>& batch, const Error& error);
  // Ends the calls of the batch.
  void finish(FusedCalls& batch, const Error& error);
  // Sends pending messages. Ends the group if something is broken.
  void end_if_broken();
  void finish(const std::shared_ptr<Op>& op, const Error& error) noexcept;
  // Ends all open calls with the cause.
  void end_all() noexcept;
  void end_one(PendingCall& open, const Error& error) noexcept;
  // Destroys an object on a thread of the pool.
  void discard(std::shared_ptr<void> what) noexcept;
  Dispatcher& dispatcher() const { return context_.progress().dispatcher(); }

  const std::string name_;
  const int rank_;
  const NegotiationOptions options_;
  Context& context_;                      // owns the lane
  std::shared_ptr<Communicator> group_;   // null after the end
  std::shared_ptr<DeviceQueue> devices_;  // null after the end
  GroupServiceDelegate* post_ = nullptr;  // set between begin() and end()
  std::optional<Negotiator> negotiator_;
  std::optional<StallInspector> stalls_;
  std::optional<CallTimeline> timeline_;
  // path and marks_cycles, until begin()
  std::optional<std::pair<std::string, bool>> timeline_wanted_;
  std::deque<PendingCall> waiting_;  // calls until begin()
  std::map<std::string, PendingCall> open_;
  std::optional<Join> join_;
  int running_ = 0;           // batches that are running
  bool ran_at_once_ = false;  // a batch without ops has ended at once
  Error cause_;               // why the group has ended
  Error broken_;              // why it must end after the current call
};

}  // namespace ringdist
