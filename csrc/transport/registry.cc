#include "transport/registry.h"

#include <array>

#include "transport/local/local.h"
#include "transport/plugin.h"

namespace ringdist {
namespace {

constexpr std::array<TransportRow, 2> kTransports{{
    {"ucx", "UCX active messages over TCP, between processes and hosts", ucx_viable, ucx_create},
    {"local", "threads of one process, seeded order and delays, for tests", local_viable,
     local_create},
}};

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

}  // namespace ringdist
