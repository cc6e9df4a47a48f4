// All settings of the process. This is the one place that reads the environment: RINGDIST_<NAME>
// for each field, and overrides (Options from Python, by field name), which win over it. Plain
// values: made once, then copied or read by any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace ringdist {

struct Config {
  std::string algorithm;               // forces an algorithm; "": the planner chooses
  int64_t segment_bytes = 252 * 1024;  // UCX sends at most 252 KiB as one fragment
  int64_t memory = int64_t{64} << 20;  // transport memory of the process, bytes
  double peer_timeout = 10.0;          // seconds of silence until a process or host is lost
  std::string socket_ifname;  // interfaces, see os/network_interfaces.h; "": the route to the store
  std::string deterministic = "run";  // "", "run" or "layout"
  std::string transport;              // of a group's messages: a name; "": chosen for each peer
  std::string device_path;            // of tensors on devices: "nccl" or "host"; "": chosen
  std::string ucx = "wheel";          // "wheel" or "system"
  std::string costs;                  // a file of constants to plan by; "": built in
  std::string codec;                  // of float SUMs and AVGs, see codec/codec.h; "": none
  LogLevel log_level = LogLevel::kWarn;
  double warn_after = 30.0;    // seconds an op waits until that is logged; 0: never
  double destroy_grace = 5.0;  // seconds that a destroyed group waits for its receives

  // Also logs, once per process, RINGDIST_ variables that nobody reads.
  static Result<Config> from_environment(const std::map<std::string, std::string>& overrides);

  // The same, from a given environment and in silence.
  static Result<Config> parse(const std::map<std::string, std::string>& environment,
                              const std::map<std::string, std::string>& overrides);

  struct Variable {
    std::string name;   // "RINGDIST_MEMORY"
    std::string field;  // "memory"
    std::string type;   // "str", "int" or "float", as of Python
    std::string value;
    std::string default_value;
    std::string meaning;
    std::string accepted;
    std::string source;  // "default", "environment" or "option"
    bool set = false;    // by the environment or an option
  };
  std::vector<Variable> variables() const;

  // RINGDIST_ variables of the environment that are none of ours: most likely misspelt.
  const std::vector<std::string>& unknown_variables() const { return unknown_; }

  // That the value of a field is not one of what is accepted, for who knows those: names of
  // plug-ins are unknown here.
  Error reject(std::string_view field, std::string_view accepted) const;

  // What all ranks of a group must agree on, as a text for messages and as a hash to compare.
  std::string options_text() const;
  uint64_t options_hash() const;

 private:
  std::map<std::string, std::string> sources_;  // field -> "environment" | "option"
  std::vector<std::string> unknown_;
};

}  // namespace ringdist
