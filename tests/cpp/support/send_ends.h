// Tracks the sends of a test that drives a transport itself, with a callback for the completion of
// each.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>

#include "transport/transport.h"

namespace ringdist {

class SendEnds {
 public:
  using Done = std::function<void(const Error&)>;

  // Returns a new id for a send to pass to the transport. `done` is called once, from end().
  SendId begin(Done done) {
    open_.emplace(++last_, std::move(done));
    return last_;
  }
  void end(SendId send_id, const Error& error) {
    const auto entry = open_.extract(send_id);
    ASSERT_FALSE(entry.empty()) << "a send that was not begun, or that had ended";
    entry.mapped()(error);
  }

 private:
  std::map<SendId, Done> open_;
  SendId last_ = kNoSendId;
};

}  // namespace ringdist
