// Where the stores of groups can be: a group that lost the one that it began with goes on with
// another, which one of its processes serves. Any thread.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "rendezvous/store.h"

namespace ringdist {

class StoreServer {
 public:
  virtual ~StoreServer() = default;
  // Serves one at this process' numeric address until it ends: "ip:port", always the same. "": it
  // cannot.
  virtual std::string offer(const std::string& ip) = 0;
  // That which is offered there. Waits until it answers, for 30 s at most.
  virtual Result<std::shared_ptr<Store>> open(const std::string& address) = 0;
};

}  // namespace ringdist
