// Chooses a codec for each bucket of a backward pass. The choice is "none", or the gentlest codec
// that hides communication behind the remaining computation.
//
// The functions are pure: ranks that pass equal numbers get equal choices. Any thread may call
// them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ringdist {

// Cost of one candidate. An allreduce of n elements takes latency + n * seconds_per_element,
// including the time on the wire and in the codec.
struct CodecCost {
  std::string name;  // name for the explanation
  double seconds_per_element = 0;
  std::vector<double> seconds;  // by bucket, replaces the formula unless empty
  bool coarse = false;          // training may need more steps
};

// Size and time of one bucket.
struct BucketLoad {
  double ready = 0;     // seconds from the beginning of the backward pass
  double elements = 0;  // fp32
};

// Measured times of one backward pass and its step.
struct BackwardPass {
  std::vector<BucketLoad> buckets;  // in the order in which they become ready
  double end = 0;                   // seconds: when the computation is done
  double step = 0;                  // seconds of a whole step, without the wait for communication
  double latency = 0;               // seconds of an op, independent of its size
};

// Result of choose_codecs().
struct CodecChoice {
  std::vector<size_t> codecs;  // by bucket: index into the candidates
  double exposed = 0;          // seconds of communication after the end of the computation
  double exposed_plain = 0;    // the same with the first candidate everywhere
};

// Chooses one codec for all buckets. Then replaces it in single buckets by a gentler one if that
// exposes no more communication, or at most 3 % of a step in all.
//
// Candidates are ordered from gentle to harsh, and the first is "none". There is at least one, and
// only the last one may be coarse. The model assumes that buckets travel one after another.
//
// Gradients stay uncompressed if no codec makes the step a tenth shorter, because smaller gains do
// not justify rounding and may be measurement errors. A coarse candidate must make the step 2.5
// times as short as the codec that would be chosen without it.
CodecChoice choose_codecs(const BackwardPass& pass, std::span<const CodecCost> candidates);

// Returns the seconds of communication that remain after the computation ends, if bucket i uses
// candidate codecs[i]. `codecs` has one entry per bucket.
double exposed_seconds(const BackwardPass& pass, std::span<const CodecCost> candidates,
                       std::span<const size_t> codecs);

// Returns one line for the log, such as "int4 for 3 of 4 buckets, none for 1 of 4 buckets: ...".
std::string explain(const CodecChoice& choice, const BackwardPass& pass,
                    std::span<const CodecCost> candidates);

}  // namespace ringdist
