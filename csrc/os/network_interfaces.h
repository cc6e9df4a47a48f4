// Choice of the network interface. A wrong interface is the most frequent problem on a new cluster.
// So the default follows the kernel's route to the store, and errors list the interfaces that
// exist. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace ringdist {

// One address of an interface.
struct NetworkInterface {
  std::string name;     // with the label of the address, if it has one: eth0:1
  std::string address;  // numeric, with its scope if it is a link-local IPv6 address (%eth0)
  int prefix = 0;       // bits of the network part
  bool ipv6 = false;
  bool up = false;
  bool loopback = false;
  bool guessed = false;  // chosen without a route to another host
  bool plain = true;     // its device has an address that is neither link-local nor labelled

  std::string device() const { return name.substr(0, name.find(':')); }
};

// Returns one entry per address: IPv4 first, link-local IPv6 last. Error: kSystem.
Result<std::vector<NetworkInterface>> list_interfaces();

// Formats interfaces for messages: "eth0 10.0.0.3/24, lo 127.0.0.1/8 (loopback)".
std::string format_interfaces(const std::vector<NetworkInterface>& interfaces);

// Returns the candidates that are up and that `spec` names, in its order, with one address per
// interface. `spec` has names, name prefixes ("eth") or networks ("10.0.0.0/8"), separated by
// commas. A full name wins over a prefix; loopback matches only its full name or network. A
// link-local address of IPv6 counts only if nothing else matches a part. Error: kInvalidArgument,
// if none matches.
Result<std::vector<NetworkInterface>> select_interfaces(
    const std::string& spec, const std::vector<NetworkInterface>& candidates);

// Returns the interfaces to use, the best first; the list is never empty. If `spec` is not empty,
// it selects them. Otherwise, the result is the interface with the address that the kernel picks to
// reach `store_host`.
//
// If `store_host` is empty or a name of this host, the result is a guess
// (NetworkInterface::guessed). The guess is the interface of the default route, else the first that
// other hosts may reach, else loopback. Loopback also counts as a guess if `store_host` is an
// address of it. May block in the resolver. Errors: kInvalidArgument, kSystem.
Result<std::vector<NetworkInterface>> choose_interfaces(const std::string& spec,
                                                        const std::string& store_host);

}  // namespace ringdist
