// Settings of the process. No other C++ code reads RINGDIST_ variables. Each field is set by the
// variable RINGDIST_<NAME> or by an override, which wins over the variable. Overrides are Options
// from Python, by field name.
//
// A Config is a plain value: it is made once, then copied or read by any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace ringdist {

// Files with the credentials of a process, see os/tls_key.h. All are empty without credentials.
struct TlsFiles {
  std::string key_file;  // the key of the job
  std::string cert;      // certificate of this process, in PEM form as the next two
  std::string cert_key;  // its private key
  std::string ca;        // certificate of the authority that has signed those of all members

  // Returns the variable by which connections are encrypted; empty if they are not. The settings
  // may be invalid.
  std::string_view encrypted_by() const;
};

// Values of all settings, with their defaults.
struct Config : TlsFiles {
  std::string algorithm;               // forces an algorithm (else the planner chooses)
  int64_t segment_bytes = 252 * 1024;  // largest segment; UCX sends at most 252 KiB as one fragment
  int64_t memory = int64_t{64} << 20;  // limit of the transports' memory in this process, bytes
  double peer_timeout = 10.0;  // seconds of silence after which a process or host counts as lost
  std::string socket_ifname;   // (default: the route to the store), see os/network_interfaces.h
  // Where this process listens: "47000", or "47000-47999" for the first free one (else the kernel
  // chooses).
  std::string port;
  // "run": the same call gives the same bits. "layout": an element's bits also do not depend on its
  // position. "": neither.
  std::string deterministic = "run";
  std::string transport;      // names, separated by commas, to choose from for each peer (else all)
  std::string device_path;    // path of device tensors: "nccl" or "host" (else chosen)
  std::string ucx = "wheel";  // library to load: "wheel" or "system"
  std::string costs;          // file of constants for the planner (else built in)
  std::string codec;          // compresses float SUM and AVG, see codec/codec.h (else none)
  LogLevel log_level = LogLevel::kWarn;
  std::string log_format = "text";  // or "json", see base/log.h
  int64_t nan_check = 0;            // 1: the group fails where values that an op reads have a NaN
  double warn_after = 30.0;         // seconds after which a waiting op is logged; 0 means never
  double destroy_grace = 5.0;       // seconds that a destroyed group waits for its receives

  // Returns the settings of this process. Logs a warning, once per process, about RINGDIST_
  // variables that no code reads. Error: kInvalidArgument, a value is not accepted or an override
  // has no field.
  static Result<Config> from_environment(const std::map<std::string, std::string>& overrides);

  // Does the same with a given environment, and logs nothing.
  static Result<Config> parse(const std::map<std::string, std::string>& environment,
                              const std::map<std::string, std::string>& overrides);

  // Description of one setting and its value, for `info` and the documentation.
  struct Variable {
    std::string name;   // "RINGDIST_MEMORY"
    std::string field;  // "memory"
    std::string type;   // "str", "int" or "float", as in Python
    std::string value;
    std::string default_value;
    std::string meaning;
    std::string accepted;
    std::string source;  // "default", "environment" or "option"
    bool set = false;    // set by the environment or an option
  };
  // Returns one Variable per field, in the order in which `info` lists them.
  std::vector<Variable> variables() const;

  // Returns the RINGDIST_ variables of the environment that do not belong to this library: most
  // likely they are misspelt.
  const std::vector<std::string>& unknown_variables() const { return unknown_; }

  // Returns a kInvalidArgument error: `NAME="value" is not valid; accepted: ...`. NAME is the
  // variable if that has set the field, else "option FIELD". Callers that can validate a plug-in's
  // name use it, because the names of plug-ins are not available here. `field` must be a field.
  Error reject(std::string_view field, std::string_view accepted) const;

  // A range of ports, both ends included. {0, 0} stands for one that the kernel chooses.
  struct PortRange {
    uint16_t first = 0;
    uint16_t last = 0;
  };
  // Returns the range that `port` names.
  PortRange ports() const;

  // Options that must be equal on all ranks of a group: as a text for messages, and as a hash to
  // compare.
  std::string options_text() const;
  uint64_t options_hash() const;

 private:
  std::map<std::string, std::string> sources_;  // maps a field to "environment" or "option"
  std::vector<std::string> unknown_;
};

}  // namespace ringdist
