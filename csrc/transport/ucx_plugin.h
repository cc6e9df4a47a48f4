// Loads the UCX transport. UCX is used by a library of its own, libringdist_ucx.so beside this one,
// which is loaded when a group first needs it. A process that uses no UCX therefore maps none of
// it.
#pragma once

#include <memory>
#include <string>

#include "transport/transport.h"

namespace ringdist {

// Identifies the UCX library in use.
struct UcxInfo {
  std::string version;  // version of the loaded UCX
  std::string path;     // path of its libucp
};

// The table of functions that libringdist_ucx.so exports.
struct UcxPlugin {
  // Returns version and path of UCX.
  UcxInfo (*info)();
  // Creates the transport; see UcxTransport::create().
  Result<std::unique_ptr<Transport>> (*create)(const TransportConfig&, TransportDelegate&);
};

// Loads the library and returns its functions. `system_ucx` chooses the system's libucp instead of
// the wheel's. One UCX serves the whole process: after a success, later calls return the same
// functions whatever they pass. A failed load is tried again. Any thread.
Result<const UcxPlugin*> load_ucx(bool system_ucx);

// Returns the path of the loaded libucp without loading it; empty if none is loaded.
std::string loaded_ucx_path();

// Returns success if UCX can be loaded, which loads it, or the reason why not.
Error ucx_viable(const TransportConfig& config);
// Opens the transport. Returns an error if too few descriptors are left, if a parent of this
// process had opened UCX, or if UCX cannot be loaded.
Result<std::unique_ptr<Transport>> ucx_create(const TransportConfig& config,
                                              TransportDelegate& receiver);

}  // namespace ringdist
