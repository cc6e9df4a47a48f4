// UCX lives in a library of its own, libringdist_ucx.so beside this one, loaded when a group first
// needs it: a process that uses no UCX maps none.
#pragma once

#include <memory>
#include <string>

#include "transport/transport.h"

namespace ringdist {

struct UcxInfo {
  std::string version;  // of the UCX that is loaded
  std::string path;     // of its libucp
};

// What libringdist_ucx.so exports.
struct UcxPlugin {
  UcxInfo (*info)();
  Result<std::unique_ptr<Transport>> (*create)(const TransportConfig&, TransportDelegate&);
};

// Loads the library once per process and returns its functions. Any thread.
Result<const UcxPlugin*> load_ucx(bool system_ucx);

// Where UCX is loaded from, without loading it: nothing if it is not.
std::string loaded_ucx_path();

Error ucx_viable(const TransportConfig& config);
Result<std::unique_ptr<Transport>> ucx_create(const TransportConfig& config,
                                              TransportDelegate& receiver);

}  // namespace ringdist
