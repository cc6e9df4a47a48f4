// Program of `make membership-sim`: members agree on their membership over a simulated network
// with faults.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "support/membership/shorten.h"
#include "support/membership/world.h"

namespace {

using namespace ringdist;
using namespace ringdist::membership;

constexpr std::string_view kHelp =
    R"(How the members of a group agree on who they are after a loss (csrc/membership/paxos), run as state machines
on a simulated network with a virtual clock. Processes are killed, stopped and woken, hosts are cut apart
and healed, one way or both, messages are late, the store is lost, newcomers join: all from a seed. After
each thing that happens is checked what must hold (docs/explanation/membership.md). A run that fails is shortened,
printed, and can be replayed.

  membership_sim [--runs N] [--seed FIRST]  N runs (100000), of the seeds FIRST (1), FIRST + 1, ...
                 [--seconds S]              no more than S seconds of them
                 [--give-ups]               members give up others without reason, too: then nothing is
                                            said of who finishes, and the rest must hold
  membership_sim --exhaustive [--stride N]  three members on one to three hosts: each pair of faults,
                                            at every Nth event and message (1)
  membership_sim --large                    how long 256 members need after a death
  membership_sim --replay SEED              what happens in that run, message by message

Ends with 1 if anything failed.
)";

struct Options {
  uint64_t seed = 1;
  int64_t runs = 100000;
  int64_t seconds = 0;
  int64_t stride = 1;
  bool exhaustive = false;
  bool large = false;
  bool give_ups = false;
  std::optional<uint64_t> replay;
};

[[noreturn]] void refuse(const std::string& why) {
  std::cerr << "membership_sim: " << why << "\n\n" << kHelp;
  std::exit(2);
}

int64_t number(std::string_view option, const char* text) {
  char* end = nullptr;
  const long long out = text ? std::strtoll(text, &end, 10) : -1;
  if (!text || *end != '\0' || end == text || out < 0)
    refuse(std::string(option) + " takes a whole number from 0 up, not '" + (text ? text : "") +
           "'");
  return out;
}

Options parse(int count, char** words) {
  Options out;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const auto next = [&] { return number(word, i + 1 < count ? words[++i] : nullptr); };
    if (word == "--help" || word == "-h") {
      std::cout << kHelp;
      std::exit(0);
    } else if (word == "--runs") {
      out.runs = next();
    } else if (word == "--seed") {
      out.seed = static_cast<uint64_t>(next());
    } else if (word == "--seconds") {
      out.seconds = next();
    } else if (word == "--stride") {
      out.stride = std::max<int64_t>(next(), 1);
    } else if (word == "--replay") {
      out.replay = static_cast<uint64_t>(next());
    } else if (word == "--exhaustive") {
      out.exhaustive = true;
    } else if (word == "--large") {
      out.large = true;
    } else if (word == "--give-ups") {
      out.give_ups = true;
    } else {
      refuse("unknown option '" + std::string(word) + "'");
    }
  }
  return out;
}

class Progress {
 public:
  explicit Progress(int64_t whole) : whole_(whole), shown_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (shown_) std::cerr << "\r\033[K";
  }
  double seconds() const { return ringdist::seconds(Clock::now() - began_); }
  void at(int64_t done) {
    if (!shown_ || (done & 255) != 0) return;
    const double part =
        static_cast<double>(done) / static_cast<double>(std::max<int64_t>(whole_, 1));
    const auto full = static_cast<size_t>(part * 40);
    std::cerr << "\r" << std::string(full, '#') << std::string(40 - full, '.') << " " << done
              << " of " << whole_ << " runs, " << static_cast<int64_t>(seconds()) << " s"
              << std::flush;
  }

 private:
  const int64_t whole_;
  const bool shown_;
  const TimePoint began_ = Clock::now();
};

std::string violation_of(const Scenario& scenario) { return World(scenario).run().violation; }

void report(const Scenario& scenario, const std::string& violation) {
  const auto fails = [](const Scenario& one) { return !violation_of(one).empty(); };
  const Scenario shortest = shorten(scenario, fails);
  std::cout << "FAILED: " << violation << "\n" << describe(scenario);
  std::cout << "the shortest run found that fails, by: " << violation_of(shortest) << "\n"
            << describe(shortest) << "its course:\n";
  World(shortest, World::usual_pace(), &std::cout).run();
}

int sum_up(int64_t runs, int64_t events, int64_t messages, double took, bool failed) {
  std::cout << runs << " runs, " << events << " events, " << messages << " messages in "
            << static_cast<int64_t>(took)
            << " s: " << (failed ? "one FAILED" : "all is as it must be") << "\n";
  return failed ? 1 : 0;
}

template <typename ScenarioOf>
int run_all(int64_t runs, int64_t seconds, const ScenarioOf& scenario_of) {
  int64_t events = 0, messages = 0, done = 0;
  bool failed = false;
  Progress progress(runs);
  while (done < runs && !failed &&
         (seconds == 0 || progress.seconds() < static_cast<double>(seconds))) {
    const Scenario scenario = scenario_of(done);
    const Outcome outcome = World(scenario).run();
    events += outcome.events;
    messages += outcome.messages;
    progress.at(++done);
    if (outcome.violation.empty()) continue;
    failed = true;
    report(scenario, outcome.violation);
  }
  return sum_up(done, events, messages, progress.seconds(), failed);
}

int run_large() {
  constexpr int kMembers = 256;
  bool failed = false;
  for (const int victim : {0, 1, 128, kMembers - 1}) {
    const Outcome outcome = World(one_death(kMembers, victim), PaxosTimeouts{}).run();
    const auto ms = [](Duration time) { return std::to_string(seconds(time) * 1e3) + " ms"; };
    std::cout << kMembers << " members, 8 to a host, 1 ms between hosts; rank " << victim
              << " dies: installed on all after " << ms(outcome.last_installed)
              << ", ops may begin after " << ms(outcome.last_begun) << ", " << outcome.messages
              << " messages" << (outcome.violation.empty() ? "" : "; FAILED: " + outcome.violation)
              << "\n";
    failed = failed || !outcome.violation.empty();
  }
  return failed ? 1 : 0;
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  const auto draw_one = options.give_ups ? draw_giving_up : draw;
  if (options.replay) {
    const Scenario scenario = draw_one(*options.replay);
    std::cout << describe(scenario);
    const Outcome outcome = World(scenario, World::usual_pace(), &std::cout).run();
    std::cout << (outcome.violation.empty() ? "all is as it must be" : outcome.violation) << "\n";
    return outcome.violation.empty() ? 0 : 1;
  }
  if (options.large) return run_large();
  if (options.exhaustive) {
    const auto all = small_scenarios(options.stride);
    return run_all(static_cast<int64_t>(all.size()), options.seconds,
                   [&](int64_t i) { return all[static_cast<size_t>(i)]; });
  }
  return run_all(options.runs, options.seconds,
                 [&](int64_t i) { return draw_one(options.seed + static_cast<uint64_t>(i)); });
}
