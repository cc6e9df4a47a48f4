#include "os/bundled_library.h"

#include <dlfcn.h>

namespace ringdist {
namespace {

// Returns the directory of the binary that contains this code.
std::string own_directory() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&load_bundled_symbol), &info) || !info.dli_fname)
    return ".";
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

// The handle is never closed. RTLD_NODELETE keeps the library even if other code closes it.
Result<void*> load_bundled_symbol(const std::string& library, const char* symbol) {
  const std::string path = own_directory() + "/" + library;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) return Error(ErrorKind::kSystem, dlerror());
  void* found = dlsym(handle, symbol);
  if (!found) return Error(ErrorKind::kSystem, path + " is not of this build; rebuild");
  return found;
}

}  // namespace ringdist
