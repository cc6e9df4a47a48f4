// Table of the parameters of one GradientCompressor, with the current method and the state of each.
// The state belongs to the parameter, independent of the bucket that it is in. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codec/residual.h"
#include "compress/bucket.h"
#include "compress/compression_method.h"

namespace ringdist {

// Limits the norm of one parameter's gradient to a multiple of its running mean. A compressed spike
// would leak through the residual for many steps of error feedback, so it is cut before encoding.
// Not thread-safe.
class GradientClipper {
 public:
  // Returns the factor to multiply a gradient of this norm with. It is 1 unless the norm exceeds
  // `limit` times the running mean. It is always 1 in the first kWarmup steps. Norms that are zero,
  // infinite or NaN return 1 and do not change the mean.
  double factor(double norm, double limit);
  // Adapts the running mean to a new loss scale; `by` is the new scale divided by the old one.
  void scale(double by) { mean_ *= by; }

  static constexpr int kWarmup = 10;

 private:
  static constexpr double kKeep = 0.9;  // weight of the old mean
  // Running mean of norms, after limiting.
  double mean_ = 0;
  int64_t steps_ = 0;
};

// Rule for one parameter. If both are empty, the codec of the GradientCompressor applies.
struct ParameterRule {
  std::string codec;     // always used; `coarsest` is not read then
  std::string coarsest;  // used in place of a codec with fewer bits
};

// Entry of the table: one parameter, its method and its state.
struct Parameter {
  ParameterInfo info;
  std::string name;
  ParameterRule rule;
  CompressionMethodPtr method;
  Residual* residual = nullptr;  // null until error feedback needs it or it was loaded
  // Right factors of PowerSGD: those of the last approximation, and those of the one under way.
  // Both are empty unless the method is PowerSGD.
  FloatBuffer right;
  FloatBuffer next_right;
  GradientClipper guard;
};

// A parameter's name and its residual in row-major order.
using NamedResidual = std::pair<std::string, std::vector<float>>;

// Parameters by key, in the order in which they were added. Pointers to entries stay valid as long
// as the table exists.
class ParameterTable {
 public:
  // `size` is the number of ranks. Parameters that were never added and have fewer elements than
  // `min_compressed` are sent uncompressed. `warn` is called for each gradient without a parameter
  // in the table, if others were added.
  ParameterTable(int size, std::optional<bool> feedback, int64_t min_compressed,
                 std::function<void(const std::string&)> warn)
      : size_(size), feedback_(feedback), min_compressed_(min_compressed), warn_(std::move(warn)) {}

  // Adds a parameter. Complex parameters are never compressed. Error kInvalidArgument: the rule has
  // an invalid codec, or a residual of another size was loaded for this name.
  Result<Parameter*> add(ParameterInfo info, std::string name, ParameterRule rule);
  // Returns the entry of a parameter. If it was never added, adds it as `describe` describes it,
  // under a name made of its position in the table. Warns if the model's parameters were added
  // before.
  Result<Parameter*> find(ParameterKey key, const std::function<ParameterInfo()>& describe);

  // Makes `spec` the codec of all parameters; their rules still apply. Error kInvalidArgument
  // leaves everything unchanged.
  Error use(const std::string& spec);

  // Returns the method of a parameter if `spec` were the codec of the GradientCompressor. The
  // parameter's rule still applies. Errors are those of use().
  Result<CompressionMethodPtr> method_for(const Parameter& parameter, const std::string& spec);
  // Sets the method of one parameter to that of method_for(). Errors are those of use().
  Error use_for(Parameter& parameter, const std::string& spec);

  // Creates the residual of the parameter unless it has one. Errors are those of
  // ResidualStore::get.
  Error provide_residual(Parameter& parameter);
  // Returns the store of all residuals. Ops in flight share it, which keeps their residuals alive.
  const std::shared_ptr<ResidualStore>& residuals() { return residuals_; }
  // Returns kInvalidArgument if the parameter `name` is complex or has another count, or if a
  // stored residual of that name has another count. Names without either are accepted.
  Error check_residual(const std::string& name, int64_t count) const;
  // Sets the residual of `name` to a copy of the row-major `values`. The parameter may be added
  // later; insertion then converts the residual to its memory order. Errors are those of
  // ResidualStore::get.
  Error load_residual(const std::string& name, std::span<const float> values);
  // Returns copies of all residuals, in the format of load_residual().
  std::vector<NamedResidual> saved() const;
  // Returns all entries in the order in which they were added.
  std::deque<Parameter>& all() { return parameters_; }

 private:
  // Adds an entry. use() must have been called before. If a residual of that name was loaded, the
  // entry takes it.
  Result<Parameter*> insert(ParameterInfo info, std::string name, ParameterRule rule);
  // Returns the first entry of that name, or null.
  const Parameter* named(const std::string& name) const;
  // Returns the method of a spec. Methods are cached, because they are immutable.
  Result<CompressionMethodPtr> method(std::string_view argument, const std::string& spec);
  // Returns the method that a rule allows if `own` is the default. Error: kInvalidArgument, for an
  // invalid spec of the rule.
  Result<CompressionMethodPtr> resolve(const ParameterRule& rule, const CompressionMethodPtr& own);

  const int size_;
  const std::optional<bool> feedback_;
  const int64_t min_compressed_;
  const std::function<void(const std::string&)> warn_;
  // Method of the GradientCompressor's codec.
  CompressionMethodPtr own_;
  bool told_ = false;                 // add() was called
  std::deque<Parameter> parameters_;  // a deque, because pointers to its entries must stay valid
  std::unordered_map<ParameterKey, Parameter*> by_key_;
  std::map<std::string, CompressionMethodPtr> methods_;
  const std::shared_ptr<ResidualStore> residuals_ = std::make_shared<ResidualStore>();
};

}  // namespace ringdist
