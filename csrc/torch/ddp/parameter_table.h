// The parameters that a hook has seen or was told of: how each travels now, and what belongs to it
// whatever bucket it is in. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codec/residual.h"
#include "compress/gradient_guard.h"
#include "compress/treatment.h"

namespace ringdist {

// What a rule says of a parameter. Both empty: the hook's own codec.
struct ParameterRule {
  std::string codec;     // always this one
  std::string coarsest;  // this one in place of a codec that takes fewer bits
};

struct Parameter {
  at::Tensor tensor;  // held, so that its address stays its own
  std::string name;
  ParameterRule rule;
  TreatmentPtr treatment;
  Residual* residual = nullptr;  // null until error feedback needs it
  // Of the last low-rank approximation, if any, and of the one under way.
  std::shared_ptr<std::vector<float>> right;
  std::shared_ptr<std::vector<float>> next_right;
  GradientGuard guard;
};

class ParameterTable {
 public:
  ParameterTable(int size, std::optional<bool> feedback) : size_(size), feedback_(feedback) {}

  // Complex ones are never compressed. Errors (kInvalidArgument): a codec of the rule, a residual
  // of another size that was loaded before.
  Error add(const at::Tensor& tensor, std::string name, ParameterRule rule);
  // The entry of a parameter. One that was never added is named after its place in the table; a
  // warning says so where others were.
  Result<Parameter*> find(const at::Tensor& tensor);

  // From now on `spec` is the hook's own codec. Errors (kInvalidArgument) change nothing.
  Error use(const std::string& spec);
  const std::string& codec() const { return spec_; }

  // What one parameter would have if `spec` were its codec: its rule holds. Errors as use().
  Result<TreatmentPtr> treatment_for(const Parameter& parameter, const std::string& spec);
  // The codec of one parameter in place of the hook's own; its rule still holds. Errors as use().
  Error use_for(Parameter& parameter, const std::string& spec);

  // Gives the parameter its residual; errors as ResidualStore::get.
  Error provide_residual(Parameter& parameter);
  // Shared with the ops in flight that were given one of them.
  const std::shared_ptr<ResidualStore>& residuals() { return residuals_; }
  // Whether a residual of so many elements may be that of `name`.
  Error check_residual(const std::string& name, int64_t count) const;
  // The residual of `name` becomes a copy of `values` (fp32, one dimension, row-major), whether the
  // parameter is known yet or not.
  Error load_residual(const std::string& name, const at::Tensor& values);
  // Copies of all residuals, as load_residual() takes them.
  std::vector<std::pair<std::string, at::Tensor>> saved() const;
  std::deque<Parameter>& all() { return parameters_; }

 private:
  Error insert(const at::Tensor& tensor, std::string name, ParameterRule rule);
  const Parameter* named(const std::string& name) const;
  Result<TreatmentPtr> treatment(std::string_view argument, const std::string& spec);
  Result<TreatmentPtr> resolve(const ParameterRule& rule, const TreatmentPtr& own);

  const int size_;
  const std::optional<bool> feedback_;
  std::string spec_;
  TreatmentPtr own_;
  bool told_ = false;                 // of the model's parameters, by add()
  std::deque<Parameter> parameters_;  // a deque: entries stay where they are
  std::unordered_map<const c10::TensorImpl*, Parameter*> by_tensor_;
  std::map<std::string, TreatmentPtr> treatments_;
  const std::shared_ptr<ResidualStore> residuals_ = std::make_shared<ResidualStore>();
};

}  // namespace ringdist
