// Progress of the TCP connections of this process between hosts, as Linux counts it. It includes
// the sockets of libraries, such as UCX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ringdist {

// Progress of the connections from one address to another during some time, seen by the sender.
struct LinkProgress {
  std::string local;   // addresses without ports
  std::string remote;  //
  uint64_t bytes = 0;  // confirmed by the other end
  // Time in microseconds in which data were on their way and the other end had room for more.
  uint64_t busy = 0;
  uint64_t resent = 0;  // segments that were sent again
  uint32_t rtt = 0;     // smoothed round-trip time in microseconds, the least of the connections
};

// Reads the counters. One thread at a time.
class TcpLinks {
 public:
  // Returns the progress since the last call, or since a connection was made. There is a row for
  // each pair of addresses, but only the `most` rows with the most bytes. Connections within
  // this host are left out, and so are sockets beyond the first 4096. Takes four system calls for
  // a connection, and one for each other descriptor. Returns nothing if the system does not
  // count, or shows no descriptors.
  std::vector<LinkProgress> read(size_t most);

 private:
  struct Counters {
    uint64_t bytes = 0;
    uint64_t busy = 0;
    uint64_t resent = 0;
  };
  std::map<uint64_t, Counters> last_;  // by cookie of the socket
};

}  // namespace ringdist
