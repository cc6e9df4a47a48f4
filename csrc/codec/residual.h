// What codecs lost and still owe: one fp32 residual per parameter, by the parameter's name, so that
// it survives whatever happens to buckets. In units of a contribution: sum of results + sum of all
// ranks' residuals = sum of inputs. Error feedback: F. Seide et al., "1-bit stochastic gradient
// descent", Interspeech 2014; S. P. Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019.
//
// Not thread-safe. What an op in flight was given of a residual belongs to that op until it has
// ended.
#pragma once

#include <map>
#include <string>

#include "base/error.h"
#include "codec/codec.h"
#include "codec/gradient_memory.h"

namespace ringdist {

struct Residual {
  FloatBuffer values;
  bool nonzero = false;  // may hold something else than zeros

  // From what is owed to what will be once the step under way has succeeded: a buffer of its own,
  // so that a step that fails leaves everything as it was.
  ResidualSpan begin();
  // It has succeeded; `is_nonzero`: as above.
  void commit(bool is_nonzero);
  double squared_norm() const;
  // With another buffer, which may be in another memory. Not while a step is under way.
  void replace(FloatBuffer buffer);

 private:
  FloatBuffer next_;  // empty until it is needed
};

class ResidualStore {
 public:
  // The residual of `name`, zeros in `memory` at first; it is there as long as the store. An Error
  // (kInvalidArgument) if it exists with another count.
  Result<Residual*> get(const std::string& name, int64_t count, GradientMemory& memory);

  const std::map<std::string, Residual>& all() const { return residuals_; }
  // For a new loss scale: the residuals were computed under the old one.
  void scale(float factor);
  void clear();
  double squared_norm() const;

 private:
  std::map<std::string, Residual> residuals_;
};

// Whether both codecs are contractions, as error feedback needs.
bool may_use_feedback(const CodecPair& codecs);
// Whether error feedback is on unless the user says otherwise.
bool feedback_by_default(const CodecPair& codecs);

}  // namespace ringdist
