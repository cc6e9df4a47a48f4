// Registry of the transports, one row each. A transport that cannot work in this process reports
// the reason through its row. The table is constant, so every function may be called from any
// thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace ringdist {

struct Config;

// Describes one transport.
struct TransportRow {
  std::string_view name;
  std::string_view description;
  bool within_host = false;   // connects processes of one host only
  bool of_processes = false;  // connects processes; the best has the first row
  bool opens_late = false;    // opening takes long, so it waits for a group that needs it
  bool uses_port = false;     // its connections arrive at the port of the control plane
  bool secure = false;        // may be used with a key: it encrypts, or does not leave the host
  // Uses no address that is link-local or has a label (eth0:1).
  bool needs_plain_address = false;
  // Returns success, or the reason why this transport cannot work in this process.
  Error (*viable)(const TransportConfig& config);
  // Opens an instance. `receiver` must outlive it.
  Result<std::unique_ptr<Transport>> (*create)(const TransportConfig& config,
                                               TransportDelegate& receiver);
};

// Returns all rows, in order of preference.
std::span<const TransportRow> transports();
// Returns the row of that name, or null.
const TransportRow* find_transport(std::string_view name);
// Returns the names of all transports, separated by commas.
std::string transport_names();
// Returns the names of the transports that connect processes, best first.
std::vector<std::string> process_transports();
// Returns true if `wanted` is empty, or a list of names, separated by commas, with `name` in it.
bool is_wanted(std::string_view wanted, std::string_view name);
// Returns success if Config::transport is empty or lists transports that connect processes.
// Otherwise returns an error that lists the accepted names.
Error check_forced_transport(const Config& config);

}  // namespace ringdist
