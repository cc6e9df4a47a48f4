// The codec "auto": watches when the buckets of a backward pass are ready, is told how long ops
// take with each candidate, and chooses what to do (compress/choose_codecs.h): first after a few
// steps, again every now and then, because links change. Ranks put in the mean of their
// measurements, so that all choose alike at the same step.
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
  explicit AutoCodec(int size);  // of the group

  // What it chooses from, from gentle to harsh. The last is PowerSGD: no codec, and coarse.
  static std::span<const std::string> candidates();
  static const std::string& low_rank() { return candidates().back(); }

  // Steps of its own, from 0. A choice is due before the buckets of some of them: the same on all
  // ranks.
  void begin_step(TimeMarkerPtr now);
  bool due() const;
  // Of the step that is under way, for done().
  int64_t step() const { return count_ - 1; }
  // Buckets in the order in which they are reduced; done() may be called at any later time. What
  // has not come to pass yet counts when it has.
  void ready(size_t bucket, double elements, TimeMarkerPtr now);
  void done(int64_t step, size_t bucket, TimeMarkerPtr now);

  // Ranks can choose only if all have seen a whole step, with as many buckets: they share the mean
  // of their view() first, and otherwise try again at the next step. Until the next view() it is
  // of the step which that one saw that they choose, whatever comes to pass meanwhile.
  std::vector<double> view();
  static bool agree(std::span<const double> mean);
  void put_off() { next_ = count_; }

  // What this rank has seen since the last choice, with what ops cost now: `latency` in seconds of
  // a tiny op, for each codec the seconds per element of a large one, and PowerSGD's seconds for
  // each bucket (infinite: not to be chosen; so are buckets that are missing). The length depends
  // on the number of buckets alone.
  std::vector<double> measurement(double latency, std::span<const double> costs,
                                  std::span<const double> low_rank) const;
  // From the mean of all ranks' measurements.
  const CodecChoice& choose(std::span<const double> mean);
  // After steps that were not ours: what was seen before them is forgotten, and the next choice is
  // as near as the first was.
  void resume();
  // The last one; of no bucket before the first.
  const CodecChoice& choice() const { return choice_; }

  // Index of a bucket's candidate: 0, none, before the first choice.
  size_t codec_of(size_t bucket) const;
  // Why: one line, empty before the first choice.
  const std::string& reason() const { return reason_; }

 private:
  struct Bucket {
    double elements = 0;
    TimeMarkerPtr ready;  // null: it has not come
    TimeMarkerPtr done;   // null: not known yet
  };
  struct Step {
    std::vector<Bucket> buckets;
    int64_t number = 0;
    TimeMarkerPtr begun;
    TimeMarkerPtr next;  // when the next one began; null before
    bool complete() const;
    double length() const;  // seconds to the next one, without waiting for the last bucket
  };

  const Step* seen() const;  // null: none

  const int size_;
  std::vector<Step> steps_;  // since the last choice
  int64_t seen_ = -1;        // number of the last one that was complete at view()
  int64_t count_ = 0;
  int64_t next_;
  double shortest_step_ = 0;
  CodecChoice choice_;
  std::string reason_;
};

}  // namespace ringdist
