#include "torch/process_context.h"

#include <mutex>

#include "os/per_process.h"

namespace ringdist {
namespace {

struct Holder {
  std::mutex mutex;
  std::shared_ptr<Context> context RINGDIST_GUARDED_BY(mutex);
  std::shared_ptr<TraceRecorder> recorder RINGDIST_GUARDED_BY(mutex);
};

// Not a plain static object: threads may outlive main(), and a Context must not end in static
// destructors.
constinit PerProcess<Holder> g_holder;

// Compares the options that cannot differ between groups of one process.
Error compare(const Config& ours, const Config& theirs) {
  const auto differs = [](const std::string& field, const auto& a, const auto& b) -> Error {
    if (a == b) return {};
    std::string values;
    if constexpr (std::is_convertible_v<decltype(a), std::string>)
      values = "'" + a + "', not '" + b + "'";
    else
      values = std::to_string(a) + ", not " + std::to_string(b);
    return Error(ErrorKind::kInvalidArgument,
                 "ringdist: option '" + field + "' holds for the whole process; the first group " +
                     "set it to " + values);
  };
  if (Error error = differs("memory", ours.memory, theirs.memory)) return error;
  if (Error error = differs("peer_timeout", ours.peer_timeout, theirs.peer_timeout)) return error;
  if (Error error = differs("socket_ifname", ours.socket_ifname, theirs.socket_ifname))
    return error;
  if (Error error = differs("port", ours.port, theirs.port)) return error;
  if (Error error = differs("key_file", ours.key_file, theirs.key_file)) return error;
  if (Error error = differs("cert", ours.cert, theirs.cert)) return error;
  if (Error error = differs("cert_key", ours.cert_key, theirs.cert_key)) return error;
  if (Error error = differs("ca", ours.ca, theirs.ca)) return error;
  return differs("ucx", ours.ucx, theirs.ucx);
}

}  // namespace

Result<std::shared_ptr<Context>> process_context(const Config& config,
                                                 const std::string& store_host) {
  Holder& h = g_holder.get();
  std::lock_guard lock(h.mutex);
  if (h.context) {
    if (Error error = compare(h.context->config(), config)) return error;
    return h.context;
  }
  ContextOptions options;
  options.config = config;
  options.store_host = store_host;
  auto context = Context::create(std::move(options));
  if (context.ok()) h.context = context.value();
  // The recorder was set before there was a Context.
  if (h.context && h.recorder) (void)h.context->record(h.recorder);
  return context;
}

std::shared_ptr<Context> existing_process_context() {
  Holder& h = g_holder.get();
  std::lock_guard lock(h.mutex);
  return h.context;
}

bool process_is_recorded() {
  Holder& h = g_holder.get();
  std::lock_guard lock(h.mutex);
  return h.recorder != nullptr;
}

bool record_process(std::shared_ptr<TraceRecorder> recorder) {
  Holder& h = g_holder.get();
  std::lock_guard lock(h.mutex);
  if (recorder && h.recorder) return false;
  if (h.context && !h.context->record(recorder) && recorder) return false;
  h.recorder = std::move(recorder);
  return true;
}

}  // namespace ringdist
