#include "cuda/nccl/loaded_nccl.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>
#include <utility>

namespace ringdist::gpu {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

// Formats a version: 22807 becomes "2.28.7".
std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// Returns a handle of the library for dlsym(). Returns null and sets `why` if there is none.
void* open_library(std::string& why) {
  // The loaded one comes first. A second NCCL in the process would have state of its own.
  if (void* const loaded = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  // NCCL may also be linked statically into a library that exports its symbols.
  if (dlsym(RTLD_DEFAULT, "ncclGetVersion") != nullptr) return RTLD_DEFAULT;
  if (void* const found = dlopen(kLibrary, RTLD_NOW)) return found;
  why = dlerror();
  return nullptr;
}

// Returns the config of all communicators: non-blocking, and without sharing. Resources that a
// communicator shares with its parent would be aborted with it, and the parent's config decides
// about sharing.
NcclConfig config() {
  NcclConfig out;
  out.blocking = 0;
  out.split_share = 0;
  return out;
}

}  // namespace

Result<std::unique_ptr<NcclApi>> LoadedNccl::load() {
  std::string why;
  void* const library = open_library(why);
  // RTLD_DEFAULT is a null handle, too, so only `why` shows that there is none.
  if (library == nullptr && !why.empty())
    return Error(ErrorKind::kSystem, why +
                                         "; PyTorch's packages for CUDA bring it, as does `pip "
                                         "install nvidia-nccl-cu13`");
  std::unique_ptr<LoadedNccl> out(new LoadedNccl());
  if (Error error = out->find_functions(library)) return error;
  if (out->nccl_.ncclGetVersion(&out->version_) != NcclResult::kSuccess ||
      out->version_ < kLeastVersion)
    return Error(ErrorKind::kSystem, "NCCL " + version_text(out->version_) + " is too old; " +
                                         version_text(kLeastVersion) + " or later is needed");
  return std::unique_ptr<NcclApi>(std::move(out));
}

Error LoadedNccl::find_functions(void* library) {
  std::string missing;
  const auto find = [&](auto*& function, const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(nccl_.ncclGetVersion, "ncclGetVersion");
  find(nccl_.ncclGetErrorString, "ncclGetErrorString");
  find(nccl_.ncclGetLastError, "ncclGetLastError");
  find(nccl_.ncclGetUniqueId, "ncclGetUniqueId");
  find(nccl_.ncclCommInitRankConfig, "ncclCommInitRankConfig");
  find(nccl_.ncclCommSplit, "ncclCommSplit");
  find(nccl_.ncclCommGetAsyncError, "ncclCommGetAsyncError");
  find(nccl_.ncclCommDestroy, "ncclCommDestroy");
  find(nccl_.ncclCommAbort, "ncclCommAbort");
  find(nccl_.ncclGroupStart, "ncclGroupStart");
  find(nccl_.ncclGroupEnd, "ncclGroupEnd");
  find(nccl_.ncclAllReduce, "ncclAllReduce");
  find(nccl_.ncclBroadcast, "ncclBroadcast");
  find(nccl_.ncclReduce, "ncclReduce");
  find(nccl_.ncclAllGather, "ncclAllGather");
  find(nccl_.ncclReduceScatter, "ncclReduceScatter");
  find(nccl_.ncclSend, "ncclSend");
  find(nccl_.ncclRecv, "ncclRecv");
  if (missing.empty()) return {};
  return Error(ErrorKind::kSystem, "NCCL is too old: it has no " + missing + "; " +
                                       version_text(kLeastVersion) + " or later is needed");
}

std::string LoadedNccl::describe(NcclResult result, NcclComm comm) const {
  std::string out = nccl_.ncclGetErrorString(result);
  const char* const last = nccl_.ncclGetLastError(comm);
  if (last != nullptr && *last != '\0') out += std::string("; last: ") + last;
  return out;
}

NcclResult LoadedNccl::unique_id(NcclUniqueId* out) { return nccl_.ncclGetUniqueId(out); }

NcclResult LoadedNccl::init_rank(NcclComm* out, int size, const NcclUniqueId& id, int rank) {
  NcclConfig how = config();
  return nccl_.ncclCommInitRankConfig(out, size, id, rank, &how);
}

NcclResult LoadedNccl::split(NcclComm comm, int color, int key, NcclComm* out) {
  NcclConfig how = config();
  return nccl_.ncclCommSplit(comm, color, key, out, &how);
}

NcclResult LoadedNccl::async_error(NcclComm comm, NcclResult* out) {
  return nccl_.ncclCommGetAsyncError(comm, out);
}

NcclResult LoadedNccl::destroy(NcclComm comm) { return nccl_.ncclCommDestroy(comm); }
NcclResult LoadedNccl::abort(NcclComm comm) { return nccl_.ncclCommAbort(comm); }
NcclResult LoadedNccl::group_start() { return nccl_.ncclGroupStart(); }
NcclResult LoadedNccl::group_end() { return nccl_.ncclGroupEnd(); }

NcclResult LoadedNccl::all_reduce(const void* in, void* out, size_t count, NcclType type,
                                  NcclReduce op, NcclComm comm, void* stream) {
  return nccl_.ncclAllReduce(in, out, count, type, op, comm, stream);
}

NcclResult LoadedNccl::broadcast(const void* in, void* out, size_t count, NcclType type, int root,
                                 NcclComm comm, void* stream) {
  return nccl_.ncclBroadcast(in, out, count, type, root, comm, stream);
}

NcclResult LoadedNccl::reduce(const void* in, void* out, size_t count, NcclType type, NcclReduce op,
                              int root, NcclComm comm, void* stream) {
  return nccl_.ncclReduce(in, out, count, type, op, root, comm, stream);
}

NcclResult LoadedNccl::all_gather(const void* in, void* out, size_t count, NcclType type,
                                  NcclComm comm, void* stream) {
  return nccl_.ncclAllGather(in, out, count, type, comm, stream);
}

NcclResult LoadedNccl::reduce_scatter(const void* in, void* out, size_t count, NcclType type,
                                      NcclReduce op, NcclComm comm, void* stream) {
  return nccl_.ncclReduceScatter(in, out, count, type, op, comm, stream);
}

NcclResult LoadedNccl::send(const void* in, size_t count, NcclType type, int peer, NcclComm comm,
                            void* stream) {
  return nccl_.ncclSend(in, count, type, peer, comm, stream);
}

NcclResult LoadedNccl::recv(void* out, size_t count, NcclType type, int peer, NcclComm comm,
                            void* stream) {
  return nccl_.ncclRecv(out, count, type, peer, comm, stream);
}

}  // namespace ringdist::gpu
