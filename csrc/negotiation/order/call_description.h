// What all ranks must say alike of an operation that they call by name. Negotiation does not look
// into it.
#pragma once

#include <cstdint>
#include <string>

namespace ringdist {

struct CallDescription {
  std::string content;     // as bytes; compared; the rest follows from it
  std::string words;       // for people: "allreduce (float32, [1000], Sum)"
  uint64_t batch = 0;      // calls of the same number may travel as one operation; 0: alone
  int64_t bytes = 0;       // that travel
  bool needs_all = false;  // it cannot run without the ranks that have joined

  bool operator==(const CallDescription& other) const { return content == other.content; }
};

}  // namespace ringdist
