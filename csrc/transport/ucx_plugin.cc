#include "transport/ucx_plugin.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "os/bundled_library.h"
#include "os/environment.h"
#include "os/fd.h"
#include "os/fork_guard.h"

namespace ringdist {
namespace {

constexpr const char* kLibrary = "libringdist_ucx.so";
// UCX may end the process if it cannot open this many descriptors.
constexpr size_t kUcxDescriptors = 20;

// Defaults for variables that UCX reads once, when it is loaded, for the whole process. A variable
// that the user has set stays as it is.
constexpr std::array<const char*, 6> kUcxSettings = {
    "UCX_HANDLE_ERRORS=none",  // signals belong to Python
    "UCX_ERROR_SIGNALS=",
    "UCX_MEM_EVENTS=no",  // no hooks in malloc and mmap
    "UCX_VFS_ENABLE=no",  // no thread of its own
    "UCX_WARN_UNUSED_ENV_VARS=no",
    "UCX_LOG_LEVEL=fatal",  // lost peers are reported by this library
};

// The process_generation() of the process that opened UCX first; 0 if none has.
std::atomic<uint64_t> g_opened_by{0};

// Returns an error if a parent of this process had opened UCX. A forked child has neither the
// threads of UCX nor usable locks. Otherwise records that this process has opened it. It runs
// before UCX opens a context; ucx_viable() may have loaded the library before.
Error refuse_after_fork() {
  uint64_t first = 0;
  const uint64_t own = process_generation();
  if (g_opened_by.compare_exchange_strong(first, own) || first == own) return {};
  return Error(ErrorKind::kAborted,
               "this process was forked from one that had opened UCX, which a child cannot use "
               "again; start it with the 'spawn' method");
}

// Loads the library and finds its entry point. The system's libucp is opened first and globally, so
// that the library binds to it instead of the wheel's.
Result<const UcxPlugin*> load(bool system_ucx) {
  set_defaults(kUcxSettings);
  if (system_ucx && !dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE))
    return Error(ErrorKind::kSystem,
                 std::string("RINGDIST_UCX=system, but the system has no libucp.so.0: ") +
                     dlerror() + "; install libucx0 or use RINGDIST_UCX=wheel");
  auto entry = load_bundled_symbol(kLibrary, "ringdist_ucx_plugin");
  if (!entry.ok())
    return Error(ErrorKind::kSystem,
                 "cannot load UCX: " + entry.error().message() +
                     "; install the libucx-cu13 wheel, or set RINGDIST_UCX=system for the "
                     "system's UCX");
  using Entry = const UcxPlugin* (*)();
  return reinterpret_cast<Entry>(entry.value())();
}

}  // namespace

Result<const UcxPlugin*> load_ucx(bool system_ucx) {
  static std::mutex mutex;
  static const UcxPlugin* loaded = nullptr;  // one UCX per process, the first that loads
  std::lock_guard lock(mutex);
  if (loaded) return loaded;
  auto result = load(system_ucx);
  if (result.ok()) loaded = result.value();
  return result;
}

std::string loaded_ucx_path() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (info->dlpi_name && std::strstr(info->dlpi_name, "/libucp.so"))
          *static_cast<std::string*>(out) = info->dlpi_name;
        return 0;
      },
      &found);
  return found;
}

Error ucx_viable(const TransportConfig& config) { return load_ucx(config.system_ucx).error(); }

Result<std::unique_ptr<Transport>> ucx_create(const TransportConfig& config,
                                              TransportDelegate& receiver) {
  // UCX may end the process if it has too few descriptors.
  if (Error error = require_descriptors(kUcxDescriptors, "UCX")) return error;
  if (Error error = refuse_after_fork()) return error;
  auto plugin = load_ucx(config.system_ucx);
  if (!plugin.ok()) return plugin.error();
  return plugin.value()->create(config, receiver);
}

}  // namespace ringdist
