// RAII wrapper of a UCP context and its one worker, and the conversion of UCX errors.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <source_location>
#include <string>
#include <string_view>

#include "base/error.h"
#include "os/fork_guard.h"
#include "transport/transport.h"

namespace ringdist {

// A UCP context with a worker in serialized mode: one thread at a time may use the worker. In a
// forked child nothing is destroyed, because the parent's sockets must stay.
class UcxWorker {
 public:
  // Opens context and worker with this project's defaults. Returns an Error that suggests which
  // setting to change if UCX refuses the configuration.
  static Result<std::unique_ptr<UcxWorker>> open(const TransportConfig& config);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  // Returns the descriptor that becomes readable when the worker has work. UCX owns it.
  int event_fd() const { return event_fd_; }
  // Returns true in a forked child of the process that opened the worker.
  bool forked() const { return mark_.forked(); }
  // Returns the worker's address for peers.
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

// Converts a ucs_status_t to an Error; no other code does. Statuses that mean a broken connection
// become kPeerLost, all others kSystem. `what` names the operation.
inline Error ucx_error(std::string_view what, ucs_status_t status,
                       std::source_location where = std::source_location::current()) {
  if (status == UCS_OK) return {};
  const bool peer = status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT ||
                    status == UCS_ERR_UNREACHABLE || status == UCS_ERR_NOT_CONNECTED ||
                    status == UCS_ERR_REJECTED || status == UCS_ERR_CANCELED;
  return Error(peer ? ErrorKind::kPeerLost : ErrorKind::kSystem,
               "UCX: " + std::string(what) + ": " + ucs_status_string(status), where);
}

}  // namespace ringdist
