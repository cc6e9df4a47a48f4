// One rank's part in a negotiation, on a lane: the calls that are open, the Negotiator that agrees
// on their order with the other ranks by letters, and the ops that they become, in the group whose
// sibling carries the letters.
//
// Every call comes with the lane's driver token held.
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

// Ops on devices that are decided on: started in that order, which is the same on all ranks, by a
// thread that may wait - the first of a device waits for the other ranks, which a lane must not -
// and in a group of their own, as an op takes its number when it is started.
class DeviceQueue : public std::enable_shared_from_this<DeviceQueue> {
 public:
  // A sibling of `group` runs the ops, made when the first one comes; what ends it ends `group`.
  explicit DeviceQueue(std::shared_ptr<Communicator> group) : group_(std::move(group)) {}
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  // Of requests with a place. Brief; with the lane's driver token. Each `ended` is called once, and
  // again with the token, also where the op could not be started. An Error: none is called.
  Error add(std::vector<OpRequest> requests);

 private:
  void start_all();
  void start(OpRequest request);
  Result<std::shared_ptr<Communicator>> devices();

  const std::shared_ptr<Communicator> group_;
  std::shared_ptr<Communicator> devices_;  // by who starts, one thread at a time
  std::mutex mutex_;
  std::deque<OpRequest> waiting_ RINGDIST_GUARDED_BY(mutex_);
  bool is_starting_ RINGDIST_GUARDED_BY(mutex_) = false;
};

struct NegotiationOptions {
  NegotiatorOptions order;
  Duration warn_after = std::chrono::seconds(60);  // as of StallInspector
};

class NegotiationController final : public GroupService,
                                    private NegotiatorDelegate,
                                    private StallDelegate,
                                    public std::enable_shared_from_this<NegotiationController> {
 public:
  // A call's caller waits for `end`.
  struct PendingCall {
    NamedCall call;
    std::shared_ptr<Op> end;
  };
  // All ranks have joined.
  struct Join {
    std::shared_ptr<Op> end;
    std::shared_ptr<int> last;  // the rank that did so last, once it has ended
    FillOnDevice on_device;     // memory for what others call meanwhile
  };

  // `group`: runs the calls.
  NegotiationController(std::shared_ptr<Communicator> group, NegotiationOptions options);

  // No other of its name is open here. It ends with an error where negotiation has.
  void call(PendingCall open);
  // Until it has ended, this rank makes no calls.
  void join(Join join);
  // As of Negotiator, once it has begun.
  void tune(int64_t fusion_bytes, int batches_in_flight) {
    if (negotiator_) negotiator_->tune(fusion_bytes, batches_in_flight);
    end_if_broken();
  }
  // As of CallTimeline. While others are still looked for, it is only warned of an error.
  Error start_timeline(const std::string& path, bool marks_cycles);
  void stop_timeline(std::shared_ptr<Op> end);
  // Calls that not all ranks have made end with kAborted, and later ones do.
  void close();
  // No call is open here, and this rank has not joined; rank 0 has what was recorded.
  bool idle() const {
    return waiting_.empty() && open_.empty() && !join_ && running_ == 0 &&
           !(timeline_ && timeline_->is_busy());
  }

  // GroupService
  void begin(GroupServiceDelegate& post) override;
  Error on_service_message(int rank, ConstBytes letter) override;
  Error tick(TimePoint now) override;
  void end(const Error& cause) noexcept override;
  std::pair<TimePoint, std::string> waiting_for() const override;
  std::string dump() const override;

 private:
  // NegotiatorDelegate
  void send(int rank, std::vector<std::byte> letter) override;
  void run(const std::vector<ResponseCache::AgreedCall>& batch) override;
  void fail(const std::string& name, const std::string& why) override;
  void all_joined(int last) override;
  std::string describe_difference(const CallDescription& one,
                                  const CallDescription& other) const override {
    return first_tensor_difference(one.content, other.content);
  }

  // StallDelegate
  void send_stall(int rank, std::vector<std::byte> letter) override;
  std::string describe_rank(int rank) const override { return post_->describe_rank(rank); }
  std::vector<OpenCall> open_calls() const override;
  bool has_joined() const override { return join_.has_value(); }
  std::string elsewhere() const override;
  void warn(const std::string& text) override;

  // Whose a letter is: its last byte.
  enum class MessageKind : uint8_t { kOrder, kStall, kTimeline };
  void post(MessageKind kind, int rank, std::vector<std::byte> letter);

  std::string awaited(const std::string& name) const;
  void make(PendingCall open);
  Error start(const std::vector<ResponseCache::AgreedCall>& calls,
              const std::shared_ptr<FusedCalls>& batch);
  Error prepare(const std::vector<ResponseCache::AgreedCall>& calls, FusedCalls& batch);
  void ended(const std::shared_ptr<FusedCalls>& batch, const Error& error);
  void finish(FusedCalls& batch, const Error& error);
  void end_if_broken();
  void finish(const std::shared_ptr<Op>& op, const Error& error) noexcept;
  void end_all() noexcept;
  void end_one(PendingCall& open, const Error& error) noexcept;
  void discard(std::shared_ptr<void> what) noexcept;
  Dispatcher& dispatcher() const { return context_.progress().dispatcher(); }

  const std::string name_;
  const int rank_;
  const NegotiationOptions options_;
  Context& context_;                      // has the lane
  std::shared_ptr<Communicator> group_;   // null once it has ended
  std::shared_ptr<DeviceQueue> devices_;  // as the group
  GroupServiceDelegate* post_ = nullptr;  // while it has begun, and not ended
  std::optional<Negotiator> negotiator_;
  std::optional<StallInspector> stalls_;
  std::optional<CallTimeline> timeline_;
  std::optional<std::pair<std::string, bool>> timeline_wanted_;  // path, marks: when it begins
  std::deque<PendingCall> waiting_;                              // until it begins
  std::map<std::string, PendingCall> open_;
  std::optional<Join> join_;
  int running_ = 0;           // batches
  bool ran_at_once_ = false;  // one has, as there was nothing to run
  Error cause_;               // why it ended
  Error broken_;              // why it must, when what is under way has returned
};

}  // namespace ringdist
