// Which network interface to use. The wrong one is the first thing that goes wrong on a new
// cluster, so the default follows the kernel's route to the store, and errors list what there is.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace ringdist {

struct NetworkInterface {
  std::string name;
  std::string address;  // numeric
  int prefix = 0;       // bits of the network part
  bool ipv6 = false;
  bool up = false;
  bool loopback = false;
  bool guessed = false;  // chosen without a route to another host
};

// One entry per address, IPv4 first; link-local IPv6 is left out (it needs a scope to be of use).
Result<std::vector<NetworkInterface>> list_interfaces();

// "eth0 10.0.0.3/24, lo 127.0.0.1/8 (loopback)"
std::string format_interfaces(const std::vector<NetworkInterface>& interfaces);

// Of the candidates that are up, those that `spec` names, in its order, one address per interface.
// spec: comma separated names, name prefixes ("eth") or networks ("10.0.0.0/8"). A full name beats
// a prefix; loopback only by its full name or network.
Result<std::vector<NetworkInterface>> select_interfaces(
    const std::string& spec, const std::vector<NetworkInterface>& candidates);

// The interfaces to use, best first, never empty. With no spec: the one whose address the kernel
// picks to reach `store_host`. Where that is unknown, or a name of this host's own, it is a guess:
// the one of the default route, else the first that other hosts may reach, else loopback. So is
// loopback, where `store_host` is an address of it. May block in the resolver.
Result<std::vector<NetworkInterface>> choose_interfaces(const std::string& spec,
                                                        const std::string& store_host);
Result<NetworkInterface> choose_interface(const std::string& spec, const std::string& store_host);

}  // namespace ringdist
