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
    {.name = "shm",
     .description = "memory that the processes of one host share",
     .within_host = true,
     .of_processes = true,
     .secure = true,
     .viable = shm_viable,
     .create = shm_create},
    {.name = "ucx",
     .description = "UCX active messages over TCP, between processes and hosts",
     .of_processes = true,
     .opens_late = true,
     .needs_plain_address = true,
     .viable = ucx_viable,
     .create = ucx_create},
    {.name = "tcp",
     .description = "TCP connections to the one port of a process, between processes and hosts",
     .of_processes = true,
     .opens_late = true,
     .uses_port = true,
     .secure = true,
     .viable = tcp_viable,
     .create = tcp_create},
    {.name = "local",
     .description = "threads of one process, seeded order and delays, for tests",
     .secure = true,
     .viable = local_viable,
     .create = local_create},
};

// Returns the names of a list that is separated by commas.
std::vector<std::string_view> names_in(std::string_view list) {
  std::vector<std::string_view> out;
  size_t comma = list.find(',');
  for (; comma != std::string_view::npos; comma = list.find(',')) {
    out.push_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  out.push_back(list);
  return out;
}

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
  return wanted.empty() || std::ranges::count(names_in(wanted), name) > 0;
}

Error check_forced_transport(const Config& config) {
  const std::vector<std::string> names = process_transports();
  const auto exists = [&names](std::string_view name) {
    return std::ranges::count(names, name) > 0;
  };
  if (config.transport.empty()) return {};
  for (const std::string_view name : names_in(config.transport))
    if (const TransportRow* row = find_transport(name);
        row && !row->secure && !config.encrypted_by().empty())
      return Error(ErrorKind::kInvalidArgument,
                   "RINGDIST_TRANSPORT=\"" + config.transport + "\" cannot be used together with " +
                       std::string(config.encrypted_by()) + ", because " + std::string(name) +
                       " does not encrypt: use shm,tcp, or no key");
  if (std::ranges::all_of(names_in(config.transport), exists)) return {};
  std::string accepted = "\"\"";
  for (const std::string& name : names) accepted += ", " + name;
  return config.reject("transport", accepted + ", or several of them, separated by commas");
}

}  // namespace ringdist
