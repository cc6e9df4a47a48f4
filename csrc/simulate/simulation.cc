#include "simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/compiled_schedule.h"
#include "simulate/network_model.h"
#include "simulate/rank_symmetry.h"
#include "simulate/simulated_rank.h"

namespace ringdist {
namespace {

// Runs the ranks of one symmetry period over a NetworkModel.
class Simulation final : private NetworkModelDelegate {
 public:
  // `alike` is a symmetry period: ranks below it are simulated. `request` must outlive this object.
  Simulation(const SimulationRequest& request, int alike) : request_(request), alike_(alike) {}

  // Builds the ranks. Returns false if there are too many steps.
  bool load();
  // Runs until every rank has ended.
  SimulationResult run();

 private:
  // The way of an edge's messages between simulated ranks.
  struct Hop {
    int from;  // a simulated rank
    int out;
    int to;  // the rank that stands for its receiver
    int in;
  };

  // The use of a host's lines.
  struct Lines {
    double share = 1;  // ranks of the host per simulated one
    int64_t out = 0;   // bytes of payload
    int64_t in = 0;
  };

  int size() const { return request_.shape.size; }
  void join(const std::vector<Schedule>& schedules);
  void connect();
  void add_cores();
  // Lets a rank do all that it can, and passes its sends and credits on.
  void work(int rank);
  // Gives a segment to the network, and counts its bytes.
  void send(int rank, const SimulatedRank::Done& what);
  void on_left(int id) override;
  void on_arrived(int id) override;
  void on_time(int id) override;
  // Returns the result for all ranks: sums of the simulated ones, times the ranks that each stands
  // for.
  SimulationResult totals(Duration time) const;

  const SimulationRequest& request_;
  const int alike_;
  int64_t joined_ = 1;
  NetworkCosts costs_;                // costs of a message of joined segments
  std::optional<NetworkModel> wire_;  // set once costs_ is computed
  std::vector<SimulatedRank> ranks_;
  std::vector<std::vector<Hop>> hops_;  // by rank and sending end
  // The (rank, sending end) of each edge, by rank and receiving end.
  std::vector<std::vector<std::pair<int, int>>> senders_of_;
  std::vector<Hop> on_the_way_;  // by the ids of NetworkModel::send()
  // The (rank, sending end) that gets a credit, by the ids of NetworkModel::at().
  std::vector<std::pair<int, int>> credits_;
  std::vector<SimulatedRank::Done> done_;
  std::vector<char> ended_;  // by rank
  int unended_ = 0;
  SimulationResult walked_;
  std::vector<Lines> lines_;  // by host
};

bool Simulation::load() {
  Shape shape = request_.shape;
  shape.topology = request_.topology;
  auto schedules =
      schedules_to_simulate(*request_.algorithm, request_.kind, std::move(shape), alike_);
  if (!schedules) return false;
  join(*schedules);
  for (Schedule& schedule : *schedules)
    ranks_.emplace_back(*compile(std::move(schedule), joined_ * request_.segment_count),
                        std::max<int64_t>(2, request_.window / joined_));
  ended_.resize(ranks_.size());
  unended_ = alike_;
  connect();
  add_cores();
  return true;
}

// Counts the messages and decides how many segments are joined to one message. A joined message has
// the per-message costs of all its segments, so the total stays the same.
void Simulation::join(const std::vector<Schedule>& schedules) {
  int64_t messages = 0;
  int64_t longest = 1;  // segments
  for (const Schedule& schedule : schedules)
    for (const Step& step : schedule.steps) {
      const int64_t segments = std::max<int64_t>(
          1, (step.range.count + request_.segment_count - 1) / request_.segment_count);
      longest = std::max(longest, segments);
      messages += segments * static_cast<int64_t>(step.to.size());
    }
  walked_.messages = messages;
  check(request_.most_messages > 0, "a simulation of no messages");
  if (messages > request_.most_messages)
    joined_ = std::min(longest, (messages - 1) / request_.most_messages + 1);
  costs_ = request_.costs;
  for (LinkCosts* each : {&costs_.inside, &costs_.between}) {
    each->per_message *= joined_;
    each->framing *= joined_;
  }
  NetworkModelDelegate& events = *this;
  wire_.emplace(costs_, events);
}

// Connects the ends of edges. The rank that stands for the receiver has the sender at the same
// distance as the receiver has.
void Simulation::connect() {
  hops_.resize(ranks_.size());
  senders_of_.resize(ranks_.size());
  for (int from = 0; from < alike_; ++from) {
    const SimulatedRank& rank = ranks_[static_cast<size_t>(from)];
    for (int at = 0; at < rank.outs(); ++at) {
      const SimulatedRank::Out& out = rank.out(at);
      const int to = out.peer % alike_;
      const int seen = (from + to - out.peer + size()) % size();
      const int in = ranks_[static_cast<size_t>(to)].find_in(seen, out.edge);
      check(in >= 0, "a send that no rank receives");
      hops_[static_cast<size_t>(from)].push_back({from, at, to, in});
      auto& senders = senders_of_[static_cast<size_t>(to)];
      if (senders.size() <= static_cast<size_t>(in)) senders.resize(static_cast<size_t>(in) + 1);
      senders[static_cast<size_t>(in)] = {from, at};
    }
  }
}

// If a host has more ranks than are simulated, each simulated rank gets only its share of the
// host's lines. The others would use the rest.
void Simulation::add_cores() {
  const Topology& topology = request_.topology;
  std::vector<int> here(topology.hosts.size());
  lines_.resize(topology.hosts.size());
  for (int rank = 0; rank < alike_; ++rank)
    ++here[static_cast<size_t>(topology.host_of[static_cast<size_t>(rank)])];
  for (int rank = 0; rank < alike_; ++rank) {
    const int host = topology.host_of[static_cast<size_t>(rank)];
    const auto all = static_cast<double>(topology.hosts[static_cast<size_t>(host)].size());
    Lines& lines = lines_[static_cast<size_t>(host)];
    lines.share = all / here[static_cast<size_t>(host)];
    wire_->add_core(host, lines.share);
  }
}

void Simulation::work(int rank) {
  SimulatedRank& one = ranks_[static_cast<size_t>(rank)];
  while (one.work(done_)) {
    for (const SimulatedRank::Done& done : std::exchange(done_, {})) {
      if (done.sent) {
        send(rank, done);
        continue;
      }
      // The sender receives the credit by a message without payload.
      const auto [sender, out] =
          senders_of_[static_cast<size_t>(rank)][static_cast<size_t>(done.at)];
      if (!one.needs_credit(done.at)) continue;
      const LinkCosts& costs =
          request_.topology.same_host(rank, one.in(done.at).peer) ? costs_.inside : costs_.between;
      credits_.emplace_back(sender, out);
      wire_->at(wire_->now() + costs.latency + 2 * costs.per_message,
                static_cast<int>(credits_.size()) - 1);
    }
  }
  if (one.ended() && !std::exchange(ended_[static_cast<size_t>(rank)], char{1})) --unended_;
}

void Simulation::send(int rank, const SimulatedRank::Done& what) {
  const SimulatedRank& one = ranks_[static_cast<size_t>(rank)];
  const Hop& hop = hops_[static_cast<size_t>(rank)][static_cast<size_t>(what.at)];
  const int peer = one.out(what.at).peer;
  Transfer transfer;
  transfer.from = rank;
  transfer.to = hop.to;
  transfer.flow = static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(peer);
  const double each = one.out(what.at).uncoded ? request_.uncoded_bytes : request_.element_bytes;
  transfer.bytes = std::llround(static_cast<double>(one.count_of(what.at, what.segment)) * each);
  transfer.inside = request_.topology.same_host(rank, peer);
  if (request_.stages && transfer.inside) transfer.copied = one.copied_of(what.at);
  (transfer.inside ? walked_.bytes_inside : walked_.bytes_between) += transfer.bytes;
  if (!transfer.inside) {
    lines_[static_cast<size_t>(wire_->host_of(rank))].out += transfer.bytes;
    lines_[static_cast<size_t>(wire_->host_of(hop.to))].in += transfer.bytes;
  }
  const auto id = static_cast<size_t>(wire_->send(transfer));
  if (on_the_way_.size() <= id) on_the_way_.resize(id + 1);
  on_the_way_[id] = hop;
}

void Simulation::on_left(int id) {
  const Hop hop = on_the_way_[static_cast<size_t>(id)];
  ranks_[static_cast<size_t>(hop.from)].left(hop.out);
  work(hop.from);
}

void Simulation::on_arrived(int id) {
  const Hop hop = on_the_way_[static_cast<size_t>(id)];
  ranks_[static_cast<size_t>(hop.to)].arrived(hop.in);
  work(hop.to);
}

void Simulation::on_time(int id) {
  const auto [rank, out] = credits_[static_cast<size_t>(id)];
  ranks_[static_cast<size_t>(rank)].consumed(out);
  work(rank);
}

SimulationResult Simulation::run() {
  for (int rank = 0; rank < alike_; ++rank) work(rank);
  while (unended_ > 0) {
    check(wire_->next().has_value(), "a schedule that does not end");
    wire_->move_to(*wire_->next());
  }
  return totals(wire_->now() - NetworkModel::kStart);
}

SimulationResult Simulation::totals(Duration time) const {
  SimulationResult out = walked_;
  out.time = time;
  out.ranks = alike_;
  out.joined = joined_;
  const int times = size() / alike_;
  for (int64_t* each : {&out.messages, &out.bytes_inside, &out.bytes_between}) *each *= times;
  for (const Lines& lines : lines_) {
    const auto most = static_cast<double>(std::max(lines.out, lines.in));
    out.busiest_line = std::max(out.busiest_line, static_cast<int64_t>(most * lines.share));
  }
  return out;
}

}  // namespace

std::optional<std::vector<Schedule>> schedules_to_simulate(const Algorithm& algorithm,
                                                           Collective kind, Shape shape,
                                                           int alike) {
  const auto made = [&](int rank) {
    shape.rank = rank;
    return algorithm.build(kind, shape);
  };
  constexpr auto kMost = static_cast<size_t>(kMaxSimulatedSteps);
  // An estimate by three ranks comes first, before all schedules are made. It uses the smallest,
  // because single ranks, such as a root, can have more steps.
  size_t least = kMost;
  for (const int rank : {0, alike / 2, alike - 1}) least = std::min(least, made(rank).steps.size());
  if (least * static_cast<size_t>(alike) > kMost) return std::nullopt;
  std::vector<Schedule> out;
  size_t steps = 0;
  for (int rank = 0; rank < alike; ++rank) {
    out.push_back(made(rank));
    steps += out.back().steps.size();
    if (steps > kMost) return std::nullopt;
  }
  return out;
}

Result<SimulationResult> simulate(const SimulationRequest& request) {
  const Shape& shape = request.shape;
  check(request.algorithm->supports(request.kind), "the algorithm does not support this operation");
  check(request.topology.host_of.size() == static_cast<size_t>(shape.size),
        "the layout has another number of ranks");
  check(shape.input_parts.empty() && shape.output_parts.empty(), "simulation of lists of parts");
  // Ranks of a host compete for its lines, so whole hosts are simulated where possible.
  const auto alike = [&](bool whole_hosts) {
    if (request.every_rank) return shape.size;
    return symmetry_period(*request.algorithm, request.kind, shape, request.topology, whole_hosts);
  };
  for (const bool whole_hosts : {true, false}) {
    Simulation simulate(request, alike(whole_hosts));
    if (simulate.load()) return simulate.run();
  }
  return Error(ErrorKind::kNotSupported, std::string(request.algorithm->name) + " over " +
                                             std::to_string(shape.size) +
                                             " ranks that are not alike has more than " +
                                             std::to_string(kMaxSimulatedSteps) + " steps to walk");
}

}  // namespace ringdist
