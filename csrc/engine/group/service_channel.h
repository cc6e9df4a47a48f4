// A group's letters (group_service.h): cut into messages that any transport takes, numbered by the
// pair of ranks, put together again in order.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/group/group_service.h"
#include "engine/op/execution_delegate.h"

namespace ringdist {

class ServiceChannel {
 public:
  // Null: the group has no letters.
  ServiceChannel(ExecutionDelegate& delegate, std::shared_ptr<GroupService> service);

  void begin(GroupServiceDelegate& post) {
    if (service_) service_->begin(post);
  }
  void send(int peer, std::vector<std::byte> letter);
  // Gives the letters that are complete now to the GroupService. Error: kProtocol, there is none,
  // or what it says of the letter.
  Error on_message(const MessageHeader& header, ConstBytes payload);
  Error tick() { return awaits_ ? service_->tick(delegate_.progress.now) : Error(); }
  void end(const Error& cause) noexcept {
    has_ended_ = true;
    awaits_ = false;
    if (service_) service_->end(cause);
  }

  bool await(bool awaits) { return awaits_ = awaits; }
  // All members are needed.
  bool needs_all_members() const { return awaits_; }
  std::pair<TimePoint, std::string> waiting_for() const {
    return service_ ? service_->waiting_for() : std::pair(TimePoint::max(), std::string());
  }
  std::string dump() const { return service_ ? service_->dump() : std::string(); }

 private:
  struct Part {
    bool is_last;
    std::vector<std::byte> bytes;
  };
  // To and from one rank; parts are numbered from 0.
  struct PeerStream {
    uint64_t sent = 0;
    uint64_t received = 0;
    std::map<uint64_t, Part> out_of_order;  // others on their way come before them
    std::vector<std::byte> open;            // of the letter that is not complete
  };

  ExecutionDelegate& delegate_;
  const std::shared_ptr<GroupService> service_;
  std::map<int, PeerStream> pairs_;
  bool awaits_ = false;
  bool has_ended_ = false;
};

}  // namespace ringdist
