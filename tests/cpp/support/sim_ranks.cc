#include "support/sim_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "support/requests.h"

namespace ringdist {
namespace {

constexpr uint64_t kSimNonce = 7;
constexpr auto kSimTick = Milliseconds(50);

}  // namespace

struct SimRanks::Rank final : DispatcherDelegate {
  Rank(SimRanks& of, int rank) : group(of), rank(rank) {
    EXPECT_TRUE(lock.take());
    const SimRanksOptions& options = of.options_;
    of.network_->place(context(rank), options.hosts[static_cast<size_t>(rank)]);
    TransportConfig config;
    config.context_id = context(rank);
    config.max_payload = static_cast<size_t>(options.segment_bytes);
    auto made = SimTransport::create(config, of.network_, dispatcher, /*event_fd=*/false);
    EXPECT_TRUE(made.ok());
    transport = std::move(made.value());
    dispatcher.set_now(of.network_->now());
  }

  void form(const Topology& topology) {
    GroupDescriptor members;
    members.nonce = kSimNonce;
    members.rank = rank;
    members.topology = topology;
    planner.set_topology(topology);
    for (int one = 0; one < static_cast<int>(topology.host_of.size()); ++one)
      members.members.push_back({context(one), transport.get(), "rank " + std::to_string(one)});
    GroupConfig config;
    config.name = "simulated";
    config.eager_window = group.options_.early_segments * group.options_.segment_bytes;
    slot = std::make_shared<GroupSlot>(dispatcher, rank, members.size(), config);
    dispatcher.add(slot);
    dispatcher.form(slot, members);
  }

  bool run_on_pool(std::function<void()> task) override {
    task();
    return true;
  }
  void flood(const Notice& notice) override { group.notices_.emplace_back(rank, notice); }

  SimRanks& group;
  const int rank;
  Statistics statistics;
  ProgressLock lock;
  Dispatcher dispatcher{statistics, group.options_.memory, lock, *this};
  std::unique_ptr<SimTransport> transport;
  Planner planner{{rank, static_cast<int>(group.options_.hosts.size()), group.options_.algorithm,
                   false, group.options_.segment_bytes}};
  std::shared_ptr<GroupSlot> slot;
  std::shared_ptr<Op> op;
  Outcome outcome;
};

std::vector<int> hosts_of(int size, int per_host) {
  std::vector<int> out;
  for (int rank = 0; rank < size; ++rank) out.push_back(rank / per_host);
  return out;
}

SimRanks::SimRanks(SimRanksOptions options)
    : options_(std::move(options)),
      network_(std::make_shared<SimNetwork>(options_.network)),
      called_(network_->now()),
      next_tick_(network_->now() + kSimTick) {
  const auto size = static_cast<int>(options_.hosts.size());
  std::vector<std::vector<int>> hosts(
      static_cast<size_t>(*std::ranges::max_element(options_.hosts)) + 1);
  for (int rank = 0; rank < size; ++rank) {
    hosts[static_cast<size_t>(options_.hosts[static_cast<size_t>(rank)])].push_back(rank);
    ranks_.push_back(std::make_unique<Rank>(*this, rank));
  }
  std::erase_if(hosts, [](const auto& host) { return host.empty(); });
  const Topology topology = Topology::from_hosts(hosts, size);
  for (auto& rank : ranks_) rank->form(topology);
}

SimRanks::~SimRanks() {
  for (auto& rank : ranks_) {
    rank->dispatcher.remove(rank->slot);
    rank->transport->close();
  }
}

const Statistics& SimRanks::statistics(int rank) const {
  return ranks_[static_cast<size_t>(rank)]->statistics;
}

const SimRanks::Outcome& SimRanks::outcome(int rank) const {
  return ranks_[static_cast<size_t>(rank)]->outcome;
}

std::string SimRanks::dump(int rank) const {
  return ranks_[static_cast<size_t>(rank)]->dispatcher.dump();
}

bool SimRanks::runs(const Rank& rank) const { return network_->runs(context(rank.rank)); }

// Receives the messages that have arrived and runs the work that they make possible.
void SimRanks::turn(Rank& rank) {
  if (!runs(rank)) return;
  rank.dispatcher.set_now(network_->now());
  for (bool any = true; any;) {
    any = rank.transport->progress();
    while (rank.dispatcher.run_work()) any = true;
  }
  if (!rank.op || rank.outcome.ended || !rank.op->finished()) return;
  rank.outcome = {true, rank.op->error(), network_->now() - called_};
}

void SimRanks::tick() {
  next_tick_ = network_->now() + kSimTick;
  for (auto& rank : ranks_) {
    if (!runs(*rank)) continue;
    rank->dispatcher.set_now(network_->now());
    rank->dispatcher.tick();
    turn(*rank);
  }
}

void SimRanks::pass_notices() {
  while (!notices_.empty()) {
    auto [from, notice] = std::move(notices_.front());
    notices_.pop_front();
    notice.from = context(from);
    for (auto& rank : ranks_) {
      if (rank->rank == from || !runs(*rank)) continue;
      rank->dispatcher.set_now(network_->now());
      rank->dispatcher.on_notice(notice);
      turn(*rank);
    }
  }
}

void SimRanks::tell_of_deaths() {
  const TimePoint now = network_->now();
  for (const Death& death : deaths_) {
    if (death.told > now) continue;
    for (auto& rank : ranks_) {
      if (!runs(*rank)) continue;
      rank->dispatcher.set_now(now);
      rank->dispatcher.process_lost(context(death.rank),
                                    Error(ErrorKind::kPeerLost, "its process ended"));
      turn(*rank);
    }
  }
  std::erase_if(deaths_, [now](const Death& death) { return death.told <= now; });
}

bool SimRanks::all_ended() const {
  return std::ranges::all_of(
      ranks_, [this](const auto& rank) { return !runs(*rank) || rank->outcome.ended; });
}

void SimRanks::call(const std::function<OpRequest(int rank)>& request) {
  called_ = network_->now();
  ++calls_;
  for (auto& rank : ranks_) {
    rank->outcome = {};
    if (!runs(*rank)) continue;
    rank->op = planned_op(rank->planner, request(rank->rank), calls_);
    rank->op->started = called_;
    rank->op->deadline = called_ + options_.timeout;
    rank->dispatcher.set_now(called_);
    rank->dispatcher.enqueue(rank->slot, rank->op);
  }
  for (auto& rank : ranks_) turn(*rank);
}

void SimRanks::run(Duration most) {
  const TimePoint until = network_->now() + most;
  while (!all_ended() && network_->now() < until) {
    TimePoint then = next_tick_;
    if (const auto next = network_->next()) then = std::min(then, *next);
    for (const Death& death : deaths_) then = std::min(then, death.told);
    network_->move_to(then);
    for (const ContextId id : network_->take_woken()) turn(*ranks_[id - 1]);
    tell_of_deaths();
    if (then >= next_tick_) tick();
    pass_notices();
  }
}

Duration SimRanks::time_of(const std::function<OpRequest(int rank)>& request) {
  call(request);
  run();
  Duration last{0};
  for (auto& rank : ranks_) {
    EXPECT_TRUE(rank->outcome.ended) << rank->rank << ": " << dump(rank->rank);
    EXPECT_FALSE(rank->outcome.error) << rank->outcome.error.what();
    if (!rank->outcome.ended || rank->outcome.error) break;
    last = std::max(last, rank->outcome.time);
  }
  return last;
}

void SimRanks::kill(int rank, Duration until_told) {
  network_->kill(context(rank));
  deaths_.push_back({rank, network_->now() + until_told});
}

}  // namespace ringdist
