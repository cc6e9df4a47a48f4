#include "engine/reconfiguration.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "engine/bootstrap/handle_bootstrap.h"
#include "os/random.h"

namespace ringdist {
namespace {

// Longest wait for the progress engine to run a task.
constexpr auto kLaneTime = std::chrono::seconds(10);

}  // namespace

Reconfiguration::Reconfiguration(std::shared_ptr<Context> context, CommunicatorOptions options)
    : context_(std::move(context)), instance_(random_id()), options_(std::move(options)) {}

Result<std::string> Reconfiguration::handle() {
  const auto network = context_->network(options().store_host);
  if (!network.ok()) return network.error();
  auto entry = context_->entry(network.value(), /*late=*/true, options().config.transport);
  if (!entry.ok()) return entry.error();
  options().state_in(entry.value());
  return ProcessHandle{std::move(entry.value()), instance_}.encode();
}

Result<std::vector<ProcessHandle>> Reconfiguration::members(const Request& request) const {
  auto texts = request.handles;
  if (!request.ordered) std::ranges::sort(texts);
  std::vector<ProcessHandle> out;
  std::set<uint64_t> seen;
  const auto which = [&] {
    return "handles: " + std::to_string(out.size()) + " of " + std::to_string(texts.size()) + ": ";
  };
  for (const std::string& text : texts) {
    auto handle = ProcessHandle::decode(text);
    if (!handle.ok()) return handle.error().prefixed(which());
    if (!seen.insert(handle.value().instance).second)
      return Error(ErrorKind::kInvalidArgument,
                   which() + "that of " + handle.value().entry.where() + " is there twice");
    out.push_back(std::move(handle.value()));
  }
  if (!seen.contains(instance_))
    return Error(ErrorKind::kInvalidArgument,
                 "handles: this process' own is not among the " + std::to_string(texts.size()) +
                     ": a process that is to be no member does not call reconfigure()");
  return out;
}

Error Reconfiguration::claim(int64_t uuid) {
  std::lock_guard lock(mutex_);
  if (used_.insert(uuid).second) return {};
  return {ErrorKind::kInvalidArgument,
          "uuid: " + std::to_string(uuid) + " was already used: each attempt takes another"};
}

std::optional<Error> Reconfiguration::Attempt::wait_for(Milliseconds time) const {
  const auto& outcome = formation->outcome();
  if (outcome.wait_for(time) != std::future_status::ready) return std::nullopt;
  // Other members may have aborted the attempt. The progress engine processes their notice before
  // it forms the group, so this waits for it.
  (void)group->context().progress().call([] {}, Clock::now() + kLaneTime);
  const Error first = group->failure();
  return first ? first : outcome.get().ok() ? Error() : outcome.get().error();
}

Result<Reconfiguration::Attempt> Reconfiguration::begin(const Request& request) {
  auto handles = members(request);
  if (!handles.ok()) return handles.error();
  if (Error error = claim(request.uuid)) return error;
  // All members derive the same nonce from the attempt and the handles. The instances make it
  // differ from that of other jobs which use the same uuid.
  Hash nonce;
  nonce.add(std::string_view("reconfigure")).add(request.uuid);
  for (const ProcessHandle& handle : handles.value()) nonce.add(handle.instance);
  CommunicatorOptions options = this->options();
  const auto own = std::ranges::find(handles.value(), instance_, &ProcessHandle::instance);
  options.rank = static_cast<int>(own - handles.value().begin());
  options.size = static_cast<int>(handles.value().size());
  options.members.resize(handles.value().size());
  std::iota(options.members.begin(), options.members.end(), 0);
  auto formation = std::make_shared<HandleBootstrap>(context_, options, handles.value(),
                                                     nonce.value(), Clock::now() + request.timeout);
  auto group = Communicator::create(context_, std::move(options), formation);
  if (!group.ok()) return group.error();
  return Attempt{group.value(), formation};
}

}  // namespace ringdist
