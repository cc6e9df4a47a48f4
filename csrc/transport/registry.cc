#include "transport/registry.h"

#include <algorithm>

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

bool is_wanted(std::string_view wanted, std::string_view name) {
  if (wanted.empty()) return true;
  while (true) {
    const size_t comma = wanted.find(',');
    if (wanted.substr(0, comma) == name) return true;
    if (comma == std::string_view::npos) return false;
    wanted.remove_prefix(comma + 1);
  }
}

Error check_forced_transport(const Config& config) {
  if (config.transport.empty()) return {};
  const std::vector<std::string> names = process_transports();
  std::string_view rest = config.transport;
  bool known = true;
  while (known) {
    const size_t comma = rest.find(',');
    known = std::ranges::count(names, rest.substr(0, comma)) > 0;
    if (known && comma == std::string_view::npos) return {};
    if (known) rest.remove_prefix(comma + 1);
  }
  std::string accepted = "\"\"";
  for (const std::string& name : names) accepted += ", " + name;
  return config.reject("transport", accepted + ", or several of them, separated by commas");
}

}  // namespace ringdist
