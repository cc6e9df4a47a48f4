// The sends of a test that drives a transport itself: what each is to do when it has ended.
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

  // To be given to the transport; `done` is called once.
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
