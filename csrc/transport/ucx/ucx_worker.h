// RAII over a UCP context and its one worker.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

#include "os/fork_guard.h"
#include "transport/transport.h"

namespace ringdist {

class UcxWorker {
 public:
  static Result<std::unique_ptr<UcxWorker>> open(const TransportConfig& config);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  int event_fd() const { return event_fd_; }
  bool forked() const { return mark_.forked(); }
  const std::vector<std::byte>& address() const { return address_; }

 private:
  UcxWorker() = default;
  Error open_context(const TransportConfig& config);
  Error open_worker();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  ForkMark mark_;
  std::vector<std::byte> address_;
};

}  // namespace ringdist
