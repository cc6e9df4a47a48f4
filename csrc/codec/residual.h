// Residuals: the losses of codecs that are added to the next values (error feedback). There is one
// fp32 value per element of a parameter, stored under the parameter's name, so that it survives
// changes of the buckets. Its unit is that of a contribution: sum of results + sum of all ranks'
// residuals = sum of inputs.
//
// F. Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; S. P. Karimireddy et al.,
// "Error feedback fixes SignSGD", ICML 2019.
//
// Not thread-safe. Memory of a residual that was passed to an op belongs to that op until it has
// ended.
#pragma once

#include <map>
#include <string>

#include "base/error.h"
#include "codec/codec.h"
#include "codec/gradient_memory.h"

namespace ringdist {

// Residual of one parameter.
struct Residual {
  FloatBuffer values;
  bool nonzero = false;  // false only if all values are zeros

  // Starts a step. Returns spans from the present residual to the one after the step. The new one
  // has its own buffer, so that a failed step changes nothing. `from` and `to` stay valid until the
  // next commit() or replace().
  ResidualSpan begin();
  // Ends a step that succeeded and had a begin(): the new residual replaces the present one.
  // `is_nonzero` sets `nonzero`. After a failed step nothing is called, and the next begin()
  // returns the same spans.
  void commit(bool is_nonzero);
  // Returns the sum of the squared values.
  double squared_norm() const;
  // Replaces the buffer by one that may be in another memory. It must not be called during a step.
  // `nonzero` is unchanged, so the caller moves the values.
  void replace(FloatBuffer buffer);

 private:
  FloatBuffer next_;  // empty until it is needed
};

// Residuals by parameter name.
class ResidualStore {
 public:
  // Returns the residual of `name`; a new one is zeros in `memory`, and one that exists stays where
  // it is. The pointer stays valid until the end of the store. Error: kInvalidArgument, if the
  // residual has another count.
  Result<Residual*> get(const std::string& name, int64_t count, GradientMemory& memory);

  const std::map<std::string, Residual>& all() const { return residuals_; }
  // Multiplies all residuals by `factor`, the new loss scale divided by the old one under which
  // they were computed.
  void scale(float factor);
  // Sets all residuals to zeros. They keep their names and counts.
  void clear();
  // Returns the sum of the squared values of all residuals. Those without nonzero values are not
  // read.
  double squared_norm() const;

 private:
  std::map<std::string, Residual> residuals_;
};

// Returns true if both codecs are contractions, as error feedback requires.
bool may_use_feedback(const CodecPair& codecs);
// Returns true if error feedback is on by default for these codecs.
bool feedback_by_default(const CodecPair& codecs);

}  // namespace ringdist
