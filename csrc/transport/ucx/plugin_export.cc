// Exports the only visible symbol of libringdist_ucx.so.
#include <dlfcn.h>
#include <stdlib.h>

#include "transport/ucx/ucx_transport.h"
#include "transport/ucx_plugin.h"

namespace ringdist {
namespace {

// Returns version and path of the UCX that this library is bound to.
UcxInfo ucx_info() {
  UcxInfo out;
  out.version = ucp_get_version_string();
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&ucp_get_version_string), &info) && info.dli_fname) {
    char* real = realpath(info.dli_fname, nullptr);
    out.path = real ? real : info.dli_fname;
    free(real);
  }
  return out;
}

}  // namespace
}  // namespace ringdist

extern "C" __attribute__((visibility("default"))) const ringdist::UcxPlugin* ringdist_ucx_plugin() {
  static constexpr ringdist::UcxPlugin kPlugin{&ringdist::ucx_info,
                                               &ringdist::UcxTransport::create};
  return &kPlugin;
}
