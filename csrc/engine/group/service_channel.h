// Carries the messages of a GroupService. It cuts them into parts that fit any transport, numbers
// these by pair of ranks, and reassembles them in order.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/group/group_service.h"
#include "engine/op/execution_delegate.h"

namespace ringdist {

// Connects a Group to its service. All functions may be called if the group has no service, except
// send().
class ServiceChannel {
 public:
  // `service` is null if the group has none. `delegate` must outlive this object.
  ServiceChannel(ExecutionDelegate& delegate, std::shared_ptr<GroupService> service);

  // Starts the service, which may use the delegate until end().
  void begin(GroupServiceDelegate& post) {
    if (service_) service_->begin(post);
  }
  // Sends a message to a peer. Its memory is kept until all parts have been sent.
  void send(int peer, std::vector<std::byte> message);
  // Processes a part and passes each complete message to the service. Returns kProtocol if there is
  // no service, or the service's error.
  Error on_message(const MessageHeader& header, ConstBytes payload);
  // Calls the service's tick() while it needs all members.
  Error tick() { return awaits_ ? service_->tick(delegate_.progress.now) : Error(); }
  // Ends the service. Parts that arrive later are not delivered.
  void end(const Error& cause) noexcept {
    has_ended_ = true;
    awaits_ = false;
    if (service_) service_->end(cause);
  }

  // Sets whether the service needs all members, and returns that.
  bool await(bool awaits) { return awaits_ = awaits; }
  // Returns true if the service needs all members.
  bool needs_all_members() const { return awaits_; }
  std::pair<TimePoint, std::string> waiting_for() const {
    return service_ ? service_->waiting_for() : std::pair(TimePoint::max(), std::string());
  }
  std::string dump() const { return service_ ? service_->dump() : std::string(); }

 private:
  // A part of a service message that has arrived.
  struct Part {
    bool is_last;
    std::vector<std::byte> bytes;
  };
  // State of the streams to and from one rank. Parts are numbered from 0.
  struct PeerStream {
    uint64_t sent = 0;
    uint64_t received = 0;
    std::map<uint64_t, Part> out_of_order;  // parts that arrived before earlier ones
    std::vector<std::byte> open;            // parts of the incomplete message
  };

  ExecutionDelegate& delegate_;
  const std::shared_ptr<GroupService> service_;
  std::map<int, PeerStream> pairs_;
  bool awaits_ = false;
  bool has_ended_ = false;
};

}  // namespace ringdist
