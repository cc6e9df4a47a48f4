// The networks and the transports of a Context.
#include <algorithm>

#include "base/log.h"
#include "engine/context/context.h"
#include "os/network_interfaces.h"
#include "transport/registry.h"
#include "transport/self_transport.h"

namespace ringdist {

// The lock is released while the interfaces are chosen, because the resolver may block.
Result<Context::Network> Context::network(const std::optional<std::string>& host) {
  const std::string towards = host.value_or(options_.store_host);
  {
    std::lock_guard lock(mutex_);
    if (const auto known = networks_.find(towards); known != networks_.end()) return known->second;
  }
  const auto chosen = choose_interfaces(config().socket_ifname, towards);
  if (!chosen.ok()) return chosen.error();
  const NetworkInterface& best = chosen.value()[0];
  Network out{best.address, {}, "", best.loopback, best.guessed};
  for (const NetworkInterface& one : chosen.value()) {
    out.devices += (out.devices.empty() ? "" : ",") + one.device();
    out.plain |= one.plain;
    if (&one != &best) out.others.push_back(one.address);
  }
  std::lock_guard lock(mutex_);
  return networks_.emplace(towards, std::move(out)).first->second;
}

Result<std::string> Context::listen(const std::string& ip) {
  if (const auto known = listens_.find(ip); known != listens_.end()) return known->second;
  auto address = control_->listen(ip);
  if (address.ok()) listens_[ip] = address.value();
  return address;
}

Result<std::vector<std::string>> Context::listen_on(const Network& network) {
  auto best = listen(network.ip);
  if (!best.ok()) return best.error();
  std::vector<std::string> out{std::move(best.value())};
  for (const std::string& ip : network.others) {
    auto other = listen(ip);
    if (other.ok())
      out.push_back(std::move(other.value()));
    else
      log(LogLevel::kWarn, other.error().message() + "; doing without this interface");
  }
  return out;
}

bool Context::is_open(const TransportRow& row, const std::string& devices) const {
  return std::ranges::any_of(opened_, [&](const Opened& one) {
    return one.transport->name() == row.name && (row.within_host || one.devices == devices);
  });
}

Error Context::open_self() {
  if (!opened_.empty()) return {};
  std::vector<std::unique_ptr<Transport>> made;
  made.push_back(
      std::make_unique<SelfTransport>(id_, TransportConfig().max_payload, progress_->dispatcher()));
  return open(std::move(made), "");
}

Result<Transport*> Context::to_self() {
  std::lock_guard lock(mutex_);
  if (Error error = open_self()) return error;
  return opened_.front().transport;
}

// A transport within a host that cannot be opened is skipped with a warning. Any other failure is
// an error.
Error Context::open_transports(bool late, const std::string& wanted, const Network& network) {
  if (Error error = open_self()) return error;
  TransportConfig transport_config;
  transport_config.context_id = id_;
  transport_config.interface_name = network.devices;
  transport_config.system_ucx = config().ucx == "system";
  transport_config.local_network = options_.local_network;
  transport_config.peer_timeout = peer_timeout();
  transport_config.data_port = data_port_;
  transport_config.tls_key = tls_key_;
  std::vector<std::unique_ptr<Transport>> made;
  Dispatcher& receiver = progress_->dispatcher();
  bool best_late = late && wanted.empty();
  const auto& given = options_.transports;
  for (const std::string& name : given.empty() ? process_transports() : given) {
    const TransportRow* row = ringdist::find_transport(name);
    if (!row)
      return Error(ErrorKind::kInvalidArgument,
                   "unknown transport '" + name + "'; have: " + transport_names());
    if (tls_key_ && !row->secure) continue;
    const bool named = (!config().transport.empty() && is_wanted(config().transport, name)) ||
                       (late && !wanted.empty() && is_wanted(wanted, name));
    if (row->needs_plain_address && !network.plain && !named) continue;
    const bool opens = row->opens_late ? named || std::exchange(best_late, false) : !open_;
    if (!opens || is_open(*row, network.devices)) continue;
    if (row->uses_port) {
      auto addresses = listen_on(network);
      if (!addresses.ok()) return addresses.error();
      transport_config.tcp_addresses = std::move(addresses.value());
    }
    auto transport = row->create(transport_config, receiver);
    if (transport.ok()) {
      made.push_back(std::move(transport.value()));
      continue;
    }
    const Error error = transport.error().prefixed("transport " + name + ": ");
    if (!row->within_host) return error;
    // Another transport reaches this host, too.
    log(LogLevel::kWarn, error.message() + "; doing without");
  }
  if (!made.empty())
    if (Error error = open(std::move(made), network.devices)) return error;
  open_ = true;  // a transport that could not be opened has been reported
  return {};
}

// Waits up to 10 s for the progress engine, which owns the transports from then on.
Error Context::open(std::vector<std::unique_ptr<Transport>> made, const std::string& devices) {
  std::vector<Opened> opened;
  for (const auto& transport : made) {
    // Null: the transport to this process.
    const TransportRow* row = ringdist::find_transport(transport->name());
    opened.push_back({transport.get(), row && !row->within_host ? devices : ""});
  }
  auto shared = std::make_shared<std::vector<std::unique_ptr<Transport>>>(std::move(made));
  const bool added = progress_->call(
      [this, shared] {
        for (auto& transport : *shared) progress_->add_transport(std::move(transport));
      },
      Clock::now() + std::chrono::seconds(10));
  if (!added) return Error(ErrorKind::kSystem, "the lane does not answer");
  opened_.insert(opened_.end(), opened.begin(), opened.end());
  return {};
}

}  // namespace ringdist
