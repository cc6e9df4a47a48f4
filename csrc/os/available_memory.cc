#include "os/available_memory.h"

#include <cstdio>
#include <memory>

namespace ringdist {

std::optional<size_t> available_memory() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/meminfo", "re"), &std::fclose);
  char line[128];
  size_t kilobytes = 0;
  while (file && std::fgets(line, sizeof line, file.get()))
    if (std::sscanf(line, "MemAvailable: %zu kB", &kilobytes) == 1) return kilobytes << 10;
  return std::nullopt;
}

}  // namespace ringdist
