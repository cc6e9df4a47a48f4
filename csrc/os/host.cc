#include "os/host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "os/fd.h"

namespace ringdist {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

// If the system does not report the boot id, as in some sandboxes, that part is empty in all
// processes alike.
Result<std::string> host_key() {
  constexpr const char* kBoot = "/proc/sys/kernel/random/boot_id";
  std::array<char, 36> boot{};  // a UUID
  const Fd file = Fd::open([] { return open(kBoot, O_RDONLY | O_CLOEXEC); });
  if (!file && (errno == EMFILE || errno == ENFILE)) return system_error(kBoot, errno);
  const ssize_t size = file ? read(file.get(), boot.data(), boot.size()) : 0;
  struct stat net{};
  if (stat("/proc/self/ns/net", &net) != 0) net.st_ino = 0;
  return std::string(boot.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))) + "/" +
         std::to_string(net.st_ino);
}

std::optional<size_t> available_memory() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/meminfo", "re"), &std::fclose);
  char line[128];
  size_t kilobytes = 0;
  while (file && std::fgets(line, sizeof line, file.get()))
    // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): the kernel wrote it
    if (std::sscanf(line, "MemAvailable: %zu kB", &kilobytes) == 1) return kilobytes << 10;
  return std::nullopt;
}

}  // namespace ringdist
