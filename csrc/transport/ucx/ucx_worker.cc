#include "transport/ucx/ucx_worker.h"

#include <cstdlib>
#include <memory>
#include <utility>

namespace ringdist {
namespace {

struct ConfigRelease {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using ConfigPtr = std::unique_ptr<ucp_config_t, ConfigRelease>;

// Sets a default of this project, unless the user has set UCX_<name>. A UCX without such a setting
// keeps its own default.
void set_default(ucp_config_t* config, const char* name, const char* value) {
  if (std::getenv((std::string("UCX_") + name).c_str())) return;
  (void)ucp_config_modify(config, name, value);
}

// Returns true if UCX must not send zero-copy. Before 1.16 made its second protocols the default,
// UCX aborts the process if a peer dies while TCP sends from user memory. The cause is an assertion
// on a completion that it counts down twice (1.13: 12 of 40 deaths). Copying into UCX's own buffers
// first avoids that.
bool zcopy_aborts() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return std::pair(major, minor) < std::pair(1U, 16U) && !std::getenv("UCX_TLS");
}

void apply_defaults(ucp_config_t* config, const TransportConfig& ours) {
  // Transport `shm` serves the processes of a host. UCX is used for TCP, which works best with the
  // segment size below.
  set_default(config, "TLS", "tcp");
  if (zcopy_aborts()) set_default(config, "ZCOPY_THRESH", "inf");
  // From 1.16 on, UCX takes interfaces of unknown speed for 100 Mb/s and picks 8 KiB segments.
  set_default(config, "TCP_TX_SEG_SIZE", "256k");
  set_default(config, "TCP_RX_SEG_SIZE", "256k");
  // Without this, UCX never notices a cut link with data in flight (1.22 and later set it
  // themselves).
  set_default(config, "TCP_USER_TIMEOUT", "30s");
  set_default(config, "TCP_BRIDGE_ENABLE", "y");  // the interface below may be a bridge
  if (!ours.interface_name.empty()) set_default(config, "NET_DEVICES", ours.interface_name.c_str());
}

// Returns a hint, which setting has to change, after UCX has refused `config`. If UCX accepts
// TLS=tcp, UCX_TLS is the cause.
std::string remedy(ucp_config_t* config, const ucp_params_t& params, const TransportConfig& ours) {
  if (const char* tls = std::getenv("UCX_TLS")) {
    ucp_context_h probe = nullptr;
    (void)ucp_config_modify(config, "TLS", "tcp");
    if (ucp_init(&params, config, &probe) == UCS_OK) {
      ucp_cleanup(probe);
      return " (UCX_TLS='" + std::string(tls) + "' does not fit, tcp does: unset it)";
    }
  }
  if (const char* devices = std::getenv("UCX_NET_DEVICES"))
    return " (UCX_NET_DEVICES='" + std::string(devices) + "'; unset it)";
  if (ours.interface_name.empty()) return "";
  return " (interface '" + ours.interface_name + "', of which UCX uses no link-local address and " +
         "none with a label; choose another with RINGDIST_SOCKET_IFNAME)";
}

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::open(const TransportConfig& config) {
  std::unique_ptr<UcxWorker> out(new UcxWorker());
  if (Error error = out->open_context(config)) return error;
  if (Error error = out->open_worker()) return error;
  return out;
}

Error UcxWorker::open_context(const TransportConfig& config) {
  ucp_config_t* raw = nullptr;
  if (Error error = ucx_error("reading its configuration", ucp_config_read(nullptr, nullptr, &raw)))
    return error;
  ConfigPtr ucx_config(raw);
  apply_defaults(raw, config);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  Error error = ucx_error("ucp_init", ucp_init(&params, raw, &context_));
  return error ? error.suffixed(remedy(raw, params, config)) : error;
}

Error UcxWorker::open_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (Error error = ucx_error("creating a worker", ucp_worker_create(context_, &params, &worker_)))
    return error;
  if (Error error =
          ucx_error("getting the event descriptor", ucp_worker_get_efd(worker_, &event_fd_)))
    return error;
  ucp_address_t* address = nullptr;
  size_t length = 0;
  if (Error error = ucx_error("getting the worker's address",
                              ucp_worker_get_address(worker_, &address, &length)))
    return error;
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  address_.assign(bytes, bytes + length);
  ucp_worker_release_address(worker_, address);
  return {};
}

UcxWorker::~UcxWorker() {
  if (forked()) return;  // the sockets belong to the parent
  if (worker_) ucp_worker_destroy(worker_);
  if (context_) ucp_cleanup(context_);
}

}  // namespace ringdist
