#include "os/shared_blocks.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/log.h"
#include "os/available_memory.h"
#include "os/memfd.h"

namespace ringdist {
namespace {

size_t round_to_pages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// Memory that is lacking at its first use, or taken to the last page, gets processes killed.
Error require_memory(size_t bytes) {
  const auto available = available_memory();
  if (!available || bytes <= *available - *available / 16) return {};
  return Error(ErrorKind::kSystem, "ringdist: a tensor of " + std::to_string(bytes) +
                                       " bytes does not fit into shared memory: the machine has " +
                                       std::to_string(*available) + " left");
}

// Others need descriptors, too.
size_t most_blocks() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return SharedBlocks::kMost;
  return std::min<size_t>(SharedBlocks::kMost, limit.rlim_cur / 4);
}

}  // namespace

// Never destroyed: memory is freed, and forks happen, during exit too.
SharedBlocks& SharedBlocks::of_process() {
  static SharedBlocks& instance = make();
  return instance;
}

SharedBlocks& SharedBlocks::make() {
  auto* made = new SharedBlocks;
  const auto unlock = [] { of_process().mutex_.unlock(); };
  pthread_atfork([] { of_process().mutex_.lock(); }, unlock,
                 [] {
                   of_process().watchers_.clear();
                   of_process().mutex_.unlock();
                 });
  return *made;
}

Result<std::byte*> SharedBlocks::allocate(size_t bytes) {
  if (Error error = require_memory(bytes)) return error;
  if (const size_t most = most_blocks(); count_.load(std::memory_order_relaxed) >= most)
    return without(Error(ErrorKind::kSystem, std::to_string(most) + " tensors are there"));
  const size_t size = round_to_pages(bytes);
  auto file = create_memory("ringdist-tensor", size);
  if (!file.ok()) return without(file.error());
  if (Error error = ringdist::allocate(file.value(), 0, size))
    return error.prefixed("ringdist: a tensor of " + std::to_string(bytes) + " bytes: ");
  auto block = SharedBlock::map(std::move(file.value()), size);
  if (!block.ok()) return without(block.error());
  std::byte* const data = block.value()->data();
  std::lock_guard lock(mutex_);
  blocks_.emplace(data, std::move(block.value()));
  count_.store(blocks_.size(), std::memory_order_release);
  return data;
}

Result<std::byte*> SharedBlocks::without(const Error& cause) {
  std::lock_guard lock(mutex_);
  if (!std::exchange(told_, true))
    log(LogLevel::kWarn, "shared memory has no room for more tensors, " + cause.message() +
                             ": further ones lie in usual memory");
  return nullptr;
}

bool SharedBlocks::free(std::byte* data) {
  std::shared_ptr<SharedBlock> block;
  {
    std::lock_guard lock(mutex_);
    auto node = blocks_.extract(data);
    if (node.empty()) return false;
    block = std::move(node.mapped());
    count_.store(blocks_.size(), std::memory_order_release);
  }
  block->free();
  if (!block->lent() || block->inherited()) return true;
  std::lock_guard lock(mutex_);
  frees_.fetch_add(1, std::memory_order_release);
  for (const EventFd* doorbell : watchers_) doorbell->signal();
  return true;
}

std::shared_ptr<SharedBlock> SharedBlocks::find(ConstBytes range) const {
  if (count_.load(std::memory_order_acquire) == 0) return nullptr;
  std::lock_guard lock(mutex_);
  auto it = blocks_.upper_bound(range.data());
  if (it == blocks_.begin()) return nullptr;
  const auto& block = (--it)->second;
  return block->contains(range) && !block->inherited() ? block : nullptr;
}

void SharedBlocks::watch(const EventFd& doorbell) {
  std::lock_guard lock(mutex_);
  watchers_.push_back(&doorbell);
}

void SharedBlocks::unwatch(const EventFd& doorbell) {
  std::lock_guard lock(mutex_);
  std::erase(watchers_, &doorbell);
}

SharedBlocks::Figures SharedBlocks::figures() const {
  std::lock_guard lock(mutex_);
  Figures out{blocks_.size(), 0, bytes_read_.load(std::memory_order_relaxed)};
  for (const auto& [data, block] : blocks_) out.bytes += block->size();
  return out;
}

}  // namespace ringdist
