// Decisions of the codec "auto". Records when the buckets of each backward pass become ready and
// when their averages are done, and chooses a codec for each bucket (compress/choose_codecs.h). The
// first choice comes after a few steps. Later choices follow at intervals, because links change.
//
// Ranks average their measurements before they choose, so all ranks make the same choice at the
// same step. This class does no communication; AutoCodecTuner does it.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compress/choose_codecs.h"
#include "compress/time_marker.h"

namespace ringdist {

class AutoCodec {
 public:
  // `size` is the number of ranks; with one rank no choice is ever due.
  explicit AutoCodec(int size);

  // Returns the candidates, from the gentlest to the harshest. The last one is PowerSGD, which is
  // not a codec of elements and is coarse: training may need more steps with it.
  static std::span<const std::string> candidates();
  static const std::string& low_rank() { return candidates().back(); }

  // Starts a step. Steps are counted from 0, counting only those in which "auto" is active.
  void begin_step(TimeMarkerPtr now);
  // Returns true if a choice must be made before the first bucket of this step. All ranks return
  // the same.
  bool due() const;
  // Returns the number of the step under way, to be passed to done().
  int64_t step() const { return count_ - 1; }
  // Report that a bucket of so many fp32 elements is ready to be reduced, and that its average is
  // done. Buckets are numbered in the order of reduction. done() may come at any later time, also
  // during later steps. It is ignored if the step's records have been discarded. Markers that have
  // not passed are evaluated once they have.
  void ready(size_t bucket, double elements, TimeMarkerPtr now);
  void done(int64_t step, size_t bucket, const TimeMarkerPtr& now);

  // Ranks can choose only if each has recorded a complete step, with equally many buckets. They
  // first average the values that view() returns, and choose if agree() accepts the mean. Otherwise
  // put_off() postpones the choice to the next step.
  //
  // view() fixes the step that the choice is based on; results that arrive between view() and
  // choose() do not change it.
  std::vector<double> view();
  static bool agree(std::span<const double> mean);
  void put_off() { next_ = count_; }

  // Returns the medians that this rank has recorded since the last choice, followed by the given
  // costs. `latency`: seconds of a tiny op. `costs`: for each codec, seconds per element of a large
  // op. `low_rank`: seconds with PowerSGD for each bucket. Infinite or missing values exclude it.
  // The length of the result depends only on the number of buckets.
  std::vector<double> measurement(double latency, std::span<const double> costs,
                                  std::span<const double> low_rank) const;
  // Chooses from the mean of all ranks' measurements. Requires a preceding view() that saw a
  // complete step; ends the process otherwise, or if the length is wrong.
  const CodecChoice& choose(std::span<const double> mean);
  // Continues after steps with another codec. Discards earlier records, because steps with another
  // codec have other times. The next choice is due after as many steps as the first one, or earlier
  // if one was due before.
  void resume();
  // Returns the last choice. It has no buckets before the first choice. choose() changes the object
  // that the reference names.
  const CodecChoice& choice() const { return choice_; }

  // Returns the index of a bucket's candidate. It is 0 ("none") before the first choice.
  size_t codec_of(size_t bucket) const;
  // Returns the explanation of the last choice in one line. It is empty before the first choice.
  const std::string& reason() const { return reason_; }

 private:
  // Times of one bucket in one step.
  struct Bucket {
    double elements = 0;
    TimeMarkerPtr ready;  // null: the bucket has not come
    TimeMarkerPtr done;   // null: its average is not done
  };
  // Records of one step.
  struct Step {
    std::vector<Bucket> buckets;
    int64_t number = 0;
    TimeMarkerPtr begun;
    TimeMarkerPtr next;  // begin of the following step; null until then
    // Returns true if all buckets that came are done, and all markers have passed.
    bool complete() const;
    double length() const;  // seconds to the next step, less the wait for the last bucket
  };

  const Step* seen() const;  // the step that view() selected; null if none

  const int size_;
  std::vector<Step> steps_;  // since the last choice
  int64_t seen_ = -1;        // number of the step that view() selected; -1 if none
  int64_t count_ = 0;
  int64_t next_;              // the step before which the next choice is due
  double shortest_step_ = 0;  // over all choices, in seconds; 0 if there was none
  CodecChoice choice_;
  std::string reason_;
};

}  // namespace ringdist
