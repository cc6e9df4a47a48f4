#include "compress/choose_codecs.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"

namespace ringdist {
namespace {

// Communication counts as hidden if the part that exceeds the computation is at most this share of
// a step.
constexpr double kHidden = 0.03;
// A harsher candidate is used if the step takes at most this share of the time with the gentler
// one.
constexpr double kWorth = 0.9;
// The same for the coarse candidate, relative to the codec that would be used without it. PowerSGD
// of rank 4 needed 1 to 2.7 times as many steps, depending on the network
// (benchmarks/results/compression-when.md).
constexpr double kCoarseWorth = 0.4;

// Returns the seconds of a bucket's allreduce with a candidate.
double seconds(const BackwardPass& pass, size_t bucket, const CodecCost& codec) {
  if (!codec.seconds.empty()) return codec.seconds[bucket];
  return pass.latency + pass.buckets[bucket].elements * codec.seconds_per_element;
}

// Returns the gentlest candidate that, used for all buckets, exposes at most `enough` seconds. If
// there is none, returns the one that exposes least.
size_t gentlest(const BackwardPass& pass, std::span<const CodecCost> candidates, double enough) {
  size_t best = 0;
  double least = 0;
  for (size_t codec = 0; codec < candidates.size(); ++codec) {
    const std::vector<size_t> all(pass.buckets.size(), codec);
    const double exposed = exposed_seconds(pass, candidates, all);
    if (exposed <= enough) return codec;
    if (codec == 0 || exposed < least) {
      best = codec;
      least = exposed;
    }
  }
  return best;
}

// Returns one candidate for all buckets. It is the first one if no other is worth its loss. The
// gentlest codec that hides communication is tried first, then harsher ones, until the step becomes
// a tenth shorter.
size_t choose_one(const BackwardPass& pass, std::span<const CodecCost> candidates) {
  const auto step = [&](size_t codec) {
    const std::vector<size_t> all(pass.buckets.size(), codec);
    return pass.step + exposed_seconds(pass, candidates, all);
  };
  const size_t last = candidates.size() - 1;
  const bool coarse = candidates[last].coarse;
  const auto fine = coarse ? candidates.first(last) : candidates;
  size_t codec = gentlest(pass, fine, kHidden * pass.step);
  // a harsher one may be worth it
  while (codec < fine.size() && step(codec) >= kWorth * step(0)) ++codec;
  if (codec == fine.size()) codec = 0;
  if (coarse && step(last) < kCoarseWorth * step(codec)) codec = last;
  return codec;
}

// Formats seconds with three digits, as s or ms.
std::string duration(double seconds) {
  char text[32];
  if (seconds >= 0.9995)
    std::snprintf(text, sizeof text, "%.3g s", seconds);
  else
    std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  return text;
}

}  // namespace

double exposed_seconds(const BackwardPass& pass, std::span<const CodecCost> candidates,
                       std::span<const size_t> codecs) {
  double free = 0;  // time at which the link becomes idle
  for (size_t i = 0; i < pass.buckets.size(); ++i)
    free = std::max(free, pass.buckets[i].ready) + seconds(pass, i, candidates[codecs[i]]);
  return std::max(0.0, free - pass.end);
}

CodecChoice choose_codecs(const BackwardPass& pass, std::span<const CodecCost> candidates) {
  check(!candidates.empty(), "a choice among no codecs");
  CodecChoice out;
  out.codecs.assign(pass.buckets.size(), 0);
  out.exposed_plain = exposed_seconds(pass, candidates, out.codecs);
  std::vector<size_t> codecs(pass.buckets.size(), choose_one(pass, candidates));
  // Buckets that are hidden anyway may use a gentler candidate. The first bucket is tried first,
  // and the exposed time must not grow beyond what is allowed.
  const double allowed = std::max(exposed_seconds(pass, candidates, codecs), kHidden * pass.step);
  for (size_t& one : codecs) {
    const size_t harsh = one;
    for (one = 0; one < harsh; ++one)
      if (exposed_seconds(pass, candidates, codecs) <= allowed) break;
  }
  out.codecs = std::move(codecs);
  out.exposed = exposed_seconds(pass, candidates, out.codecs);
  return out;
}

std::string explain(const CodecChoice& choice, const BackwardPass& pass,
                    std::span<const CodecCost> candidates) {
  std::string out;
  for (size_t codec = 0; codec < candidates.size(); ++codec) {
    const auto n = std::count(choice.codecs.begin(), choice.codecs.end(), codec);
    if (n > 0)
      out += (out.empty() ? "" : ", ") + candidates[codec].name + " for " + std::to_string(n) +
             " of " + std::to_string(choice.codecs.size()) + " buckets";
  }
  char rate[32];
  std::snprintf(rate, sizeof rate, "%.3g MB/s",
                1e-6 * sizeof(float) / std::max(candidates[0].seconds_per_element, 1e-15));
  const bool changed = std::ranges::any_of(choice.codecs, [](size_t codec) { return codec != 0; });
  return out + ": uncompressed, communication outlasts the backward pass of " + duration(pass.end) +
         " by " + duration(choice.exposed_plain) +
         (changed ? ", so by " + duration(choice.exposed)
                  : "; no codec makes the step a tenth shorter") +
         " (allreduce at " + rate + ", latency " + duration(pass.latency) + ")";
}

}  // namespace ringdist
