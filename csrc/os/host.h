// Which machine this is, as far as a process can tell.
#pragma once

#include <string>

namespace ringdist {

std::string host_name();

// Processes with equal keys claim to share a host: same boot of the kernel, same network namespace.
// Cloned machines can share it, so whoever relies on it asks for proof (Control::prove_same_host).
std::string host_key();

}  // namespace ringdist
