#include "os/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace ringdist {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string host_key() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  struct stat net{};
  if (stat("/proc/self/ns/net", &net) != 0) net.st_ino = 0;
  return boot + "/" + std::to_string(net.st_ino);
}

}  // namespace ringdist
