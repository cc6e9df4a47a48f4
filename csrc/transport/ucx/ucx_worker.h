// RAII over a UCP context and its one worker.
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

// Every ucs_status_t becomes an Error here and nowhere else.
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
