// Every ucs_status_t becomes an Error here and nowhere else.
#pragma once

#include <ucp/api/ucp.h>

#include <source_location>
#include <string>
#include <string_view>

#include "base/error.h"

namespace ringdist {

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
