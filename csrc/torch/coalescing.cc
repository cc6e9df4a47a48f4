#include "torch/coalescing.h"

#include <algorithm>
#include <utility>

#include "torch/errors.h"

namespace ringdist {
namespace {

bool on_one_device(const Call& a, const Call& b) {
  return a.memory.empty() || b.memory.empty() || a.memory[0].device() == b.memory[0].device();
}

bool may_fuse(const Call& a, const Call& b) {
  const OpRequest& x = a.request;
  const OpRequest& y = b.request;
  return x.kind == Collective::kAllreduce && y.kind == Collective::kAllreduce &&
         x.dtype == y.dtype && x.reduce_op == y.reduce_op && x.timeout == y.timeout &&
         !x.codec_map && !y.codec_map && on_one_device(a, b);
}

// One allreduce of the tensors of both.
void fuse(Call& into, Call from) {
  for (const at::Tensor& ours : from.memory) into.add(into.request.output, ours);
  into.request.count += from.request.count;
  into.staging.add(std::move(from.staging));
  into.inputs.insert(into.inputs.end(), from.inputs.begin(), from.inputs.end());
  into.outputs.insert(into.outputs.end(), from.outputs.begin(), from.outputs.end());
  into.completions.insert(into.completions.end(), from.completions.begin(), from.completions.end());
  into.type = c10d::OpType::ALLREDUCE_COALESCED;
}

std::vector<Call> fused(std::vector<Call> calls) {
  std::vector<Call> out;
  for (Call& call : calls)
    if (!out.empty() && may_fuse(out.back(), call))
      fuse(out.back(), std::move(call));
    else
      out.push_back(std::move(call));
  return out;
}

bool is_message_on_device(const Call& call) {
  return call.request.envelope && !call.memory.empty() && !call.memory[0].is_cpu();
}

// Streams may share a queue of their device: a send behind a receive would wait for the sender,
// which may do the same.
void let_sends_go_first(std::vector<Call>& calls) {
  std::vector<Call*> places;
  std::vector<Call> messages;
  for (Call& call : calls) {
    if (!is_message_on_device(call)) continue;
    places.push_back(&call);
    messages.push_back(std::move(call));
  }
  std::ranges::stable_partition(messages,
                                [](const Call& call) { return call.request.envelope->sends; });
  for (size_t i = 0; i < places.size(); ++i) *places[i] = std::move(messages[i]);
}

}  // namespace

// Of a region as a whole, which no hook hears of.
CompletionPtr Coalescing::completion() const { return std::make_shared<Completion>(hooks_, 0); }

std::shared_ptr<Coalescing::Region> Coalescing::find() {
  if (count_ == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(std::this_thread::get_id());
  return it == regions_.end() ? nullptr : it->second;
}

std::shared_ptr<Coalescing::Region> Coalescing::take() {
  if (count_ == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const auto node = regions_.extract(std::this_thread::get_id());
  if (node.empty()) return nullptr;
  --count_;
  return node.mapped();
}

void Coalescing::begin(RegionSubmitter starter) {
  drop();
  auto region = std::make_shared<Region>();
  region->work = c10::make_intrusive<CombinedWork>(
      completion(), rank_, c10d::OpType::COALESCED,
      [region, starter = std::move(starter)] { return run(*region, starter); });
  std::lock_guard lock(mutex_);
  regions_[std::this_thread::get_id()] = std::move(region);
  ++count_;
}

c10::intrusive_ptr<c10d::Work> Coalescing::collect(Call& call) {
  const auto region = find();
  if (!region) return nullptr;
  std::lock_guard lock(region->mutex);
  if (!region->open) return nullptr;
  call.async = true;
  auto member =
      c10::make_intrusive<CombinedWork>(call.completions.front(), rank_, call.type,
                                        [whole = c10::intrusive_ptr<c10d::Work>(region->work)] {
                                          return CombinedWork::Parts{whole};
                                        });
  region->calls.push_back(std::move(call));
  region->members.push_back(member);
  return member;
}

void Coalescing::adopt(const c10::intrusive_ptr<c10d::Work>& started) {
  const auto region = find();
  if (!region) return;
  std::lock_guard lock(region->mutex);
  region->started.push_back(started);
}

CombinedWork::Parts Coalescing::run(Region& region, const RegionSubmitter& starter) {
  std::vector<Call> calls;
  CombinedWork::Parts parts;
  {
    std::lock_guard lock(region.mutex);
    if (!std::exchange(region.open, false))
      throw_error(Error(ErrorKind::kAborted,
                        "ringdist: the coalescing region of this work was dropped, because one of "
                        "its calls was refused or it was never ended"));
    calls = std::move(region.calls);
    parts = std::exchange(region.started, {});
  }
  calls = fused(std::move(calls));
  let_sends_go_first(calls);
  starter.prepare(calls);
  for (Call& call : calls) parts.push_back(starter.submit(std::move(call)));
  return parts;
}

c10::intrusive_ptr<c10d::Work> Coalescing::end() {
  const auto region = take();
  if (!region) return join_works(completion(), rank_, c10d::OpType::COALESCED, {});
  c10::intrusive_ptr<CombinedWork> work;
  std::vector<c10::intrusive_ptr<CombinedWork>> members;
  {
    std::lock_guard lock(region->mutex);
    work = region->work;
    members.swap(region->members);
  }
  work->start();
  for (const auto& member : members) member->start();
  // What was called after somebody had ended the region by waiting.
  std::lock_guard lock(region->mutex);
  CombinedWork::Parts parts = std::exchange(region->started, {});
  parts.insert(parts.begin(), work);
  return join_works(completion(), rank_, c10d::OpType::COALESCED, std::move(parts));
}

void Coalescing::drop() {
  const auto region = take();
  if (!region) return;
  c10::intrusive_ptr<CombinedWork> work;
  std::vector<c10::intrusive_ptr<CombinedWork>> members;
  std::vector<Call> calls;
  std::lock_guard lock(region->mutex);
  region->open = false;
  calls.swap(region->calls);
  members.swap(region->members);
  work.swap(region->work);
}

}  // namespace ringdist
