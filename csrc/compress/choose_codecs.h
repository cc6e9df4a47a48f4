// Which codec each bucket of a backward pass should have: none, or the gentlest that hides
// communication behind the computation that is still to come. Pure: ranks that put in the same
// numbers choose alike.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ringdist {

// An allreduce of n elements takes latency + n * seconds_per_element: wire and codec together.
struct CodecCost {
  std::string name;
  double seconds_per_element = 0;
  std::vector<double> seconds;  // by bucket, in place of the above; empty: it holds
  bool coarse = false;          // training may take more steps
};

struct BucketLoad {
  double ready = 0;     // seconds from the beginning of the backward pass
  double elements = 0;  // fp32
};

struct BackwardPass {
  std::vector<BucketLoad> buckets;  // in the order in which they become ready
  double end = 0;                   // seconds: when the computation is done
  double step = 0;                  // seconds of a whole step without waiting for communication
  double latency = 0;               // seconds of an op, whatever it carries
};

struct CodecChoice {
  std::vector<size_t> codecs;  // by bucket: index into the candidates
  double exposed = 0;          // seconds of communication after the computation's end
  double exposed_plain = 0;    // the same with the first candidate everywhere
};

// Candidates are ordered from gentle to harsh; the first is "none". Buckets travel one after
// another. Gradients stay as they are where no codec makes the step a tenth shorter: below that,
// rounding and a measurement's error are not worth it. A coarse candidate, of which at most the
// last is one, must make it 2.5 times as short as the best of the others.
CodecChoice choose_codecs(const BackwardPass& pass, std::span<const CodecCost> candidates);

// Seconds of communication that are left when the computation ends.
double exposed_seconds(const BackwardPass& pass, std::span<const CodecCost> candidates,
                       std::span<const size_t> codecs);

// "int4 for 3 of 4 buckets, none for 1: communication would outlast ... " for one log line.
std::string explain(const CodecChoice& choice, const BackwardPass& pass,
                    std::span<const CodecCost> candidates);

}  // namespace ringdist
