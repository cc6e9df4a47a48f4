#include "transport/registry.h"

#include "base/config.h"
#include "transport/local/local_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/ucx_plugin.h"

namespace ringdist {
namespace {

constexpr TransportRow kTransports[] = {
    {"shm", "memory that the processes of one host share", true, true, false, shm_viable,
     shm_create},
    {"ucx", "UCX active messages over TCP, between processes and hosts", false, true, true,
     ucx_viable, ucx_create},
    {"tcp", "TCP connections to the one port of a process, between processes and hosts", false,
     true, true, tcp_viable, tcp_create},
    {"local", "threads of one process, seeded order and delays, for tests", false, false, false,
     local_viable, local_create},
};

}  // namespace

std::span<const TransportRow> transports() { return kTransports; }

const TransportRow* find_transport(std::string_view name) {
  for (const auto& row : kTransports)
    if (row.name == name) return &row;
  return nullptr;
}

std::string transport_names() {
  std::string out;
  for (const auto& row : kTransports) out += (out.empty() ? "" : ", ") + std::string(row.name);
  return out;
}

std::vector<std::string> process_transports() {
  std::vector<std::string> out;
  for (const auto& row : kTransports)
    if (row.of_processes) out.emplace_back(row.name);
  return out;
}

Error check_forced_transport(const Config& config) {
  if (config.transport.empty()) return {};
  std::string accepted = "\"\"";
  for (const std::string& name : process_transports()) {
    if (name == config.transport) return {};
    accepted += ", " + name;
  }
  return config.reject("transport", accepted);
}

}  // namespace ringdist
