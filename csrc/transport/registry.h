// The transports there are: one row each. What is not viable here says why.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace ringdist {

struct Config;

struct TransportRow {
  std::string_view name;
  std::string_view description;
  bool within_host;   // connects processes of one host only
  bool of_processes;  // of every process, the first in the table being the best
  bool opens_late;    // takes long to open: only for a group that needs it
  // Success, or why this transport cannot work in this process.
  Error (*viable)(const TransportConfig& config);
  Result<std::unique_ptr<Transport>> (*create)(const TransportConfig& config,
                                               TransportDelegate& receiver);
};

std::span<const TransportRow> transports();
const TransportRow* find_transport(std::string_view name);
std::string transport_names();
// Those of every process, best first.
std::vector<std::string> process_transports();
// Success, or that Config::transport names none of these.
Error check_forced_transport(const Config& config);

}  // namespace ringdist
