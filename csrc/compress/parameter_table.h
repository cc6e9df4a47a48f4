// The parameters that a hook has seen or was told of: how each travels now, and what belongs to it
// whatever bucket it is in. Not thread-safe.
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

// Caps the norm of a gradient at a multiple of its running mean: a spike that is compressed with
// error feedback leaks through the residual for many steps, so it is cut before encoding.

// One parameter's. Not thread-safe.
class GradientClipper {
 public:
  // What to multiply a gradient of this norm with: 1 unless it exceeds `limit` times the running
  // mean. Never in the first kWarmup steps, nor for a norm of zero, infinity or NaN, which do not
  // count.
  double factor(double norm, double limit);
  // For a new loss scale.
  void scale(double by) { mean_ *= by; }

  static constexpr int kWarmup = 10;

 private:
  static constexpr double kKeep = 0.9;  // of the exponential mean
  double mean_ = 0;
  int64_t steps_ = 0;
};

// What a rule says of a parameter. Both empty: the hook's own codec.
struct ParameterRule {
  std::string codec;     // always this one
  std::string coarsest;  // this one in place of a codec that takes fewer bits
};

struct Parameter {
  ParameterInfo info;
  std::string name;
  ParameterRule rule;
  CompressionMethodPtr method;
  Residual* residual = nullptr;  // null until error feedback needs it
  // Of the last low-rank approximation, if any, and of the one under way.
  FloatBuffer right;
  FloatBuffer next_right;
  GradientClipper guard;
};

using NamedResidual = std::pair<std::string, std::vector<float>>;

class ParameterTable {
 public:
  // In a group of `size`. Parameters that were never added and have fewer elements than
  // `min_compressed` are left alone. `warn` is told of others, which it may say once.
  ParameterTable(int size, std::optional<bool> feedback, int64_t min_compressed,
                 std::function<void(const std::string&)> warn)
      : size_(size), feedback_(feedback), min_compressed_(min_compressed), warn_(std::move(warn)) {}

  // Complex ones are never compressed. Errors (kInvalidArgument): a codec of the rule, a residual
  // of another size that was loaded before.
  Result<Parameter*> add(ParameterInfo info, std::string name, ParameterRule rule);
  // The entry of a parameter. One that was never added is described, and named after its place in
  // the table; a warning says so where others were.
  Result<Parameter*> find(ParameterKey key, const std::function<ParameterInfo()>& describe);

  // From now on `spec` is the hook's own codec. Errors (kInvalidArgument) change nothing.
  Error use(const std::string& spec);

  // What one parameter would have if `spec` were its codec: its rule holds. Errors as use().
  Result<CompressionMethodPtr> method_for(const Parameter& parameter, const std::string& spec);
  // The codec of one parameter in place of the hook's own; its rule still holds. Errors as use().
  Error use_for(Parameter& parameter, const std::string& spec);

  // Gives the parameter its residual; errors as ResidualStore::get.
  Error provide_residual(Parameter& parameter);
  // Shared with the ops in flight that were given one of them.
  const std::shared_ptr<ResidualStore>& residuals() { return residuals_; }
  // Whether a residual of so many elements may be that of `name`.
  Error check_residual(const std::string& name, int64_t count) const;
  // The residual of `name` becomes a copy of `values`, row-major, whether the parameter is known
  // yet or not.
  Error load_residual(const std::string& name, std::span<const float> values);
  // Copies of all residuals, as load_residual() takes them.
  std::vector<NamedResidual> saved() const;
  std::deque<Parameter>& all() { return parameters_; }

 private:
  Result<Parameter*> insert(ParameterInfo info, std::string name, ParameterRule rule);
  const Parameter* named(const std::string& name) const;
  Result<CompressionMethodPtr> method(std::string_view argument, const std::string& spec);
  Result<CompressionMethodPtr> resolve(const ParameterRule& rule, const CompressionMethodPtr& own);

  const int size_;
  const std::optional<bool> feedback_;
  const int64_t min_compressed_;
  const std::function<void(const std::string&)> warn_;
  CompressionMethodPtr own_;
  bool told_ = false;                 // of the model's parameters, by add()
  std::deque<Parameter> parameters_;  // a deque: entries stay where they are
  std::unordered_map<ParameterKey, Parameter*> by_key_;
  std::map<std::string, CompressionMethodPtr> treatments_;
  const std::shared_ptr<ResidualStore> residuals_ = std::make_shared<ResidualStore>();
};

}  // namespace ringdist
