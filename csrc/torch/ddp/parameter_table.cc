#include "torch/ddp/parameter_table.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "base/check.h"
#include "codec/none.h"
#include "torch/ddp/memory_order.h"
#include "torch/ops/coding.h"

namespace ringdist {
namespace {

at::Tensor as_tensor(const Residual& residual) {
  at::Tensor out = at::empty(static_cast<int64_t>(residual.values.size()), at::kFloat);
  std::ranges::copy(residual.values, out.mutable_data_ptr<float>());
  return out;
}

void fill(Residual& residual, const at::Tensor& values) {
  std::copy_n(values.const_data_ptr<float>(), residual.values.size(), residual.values.begin());
}

}  // namespace

const Parameter* ParameterTable::named(const std::string& name) const {
  const auto it = std::ranges::find(parameters_, name, &Parameter::name);
  return it == parameters_.end() ? nullptr : &*it;
}

Result<TreatmentPtr> ParameterTable::treatment(std::string_view argument, const std::string& spec) {
  if (auto it = treatments_.find(spec); it != treatments_.end()) return it->second;
  auto made = make_treatment(argument, spec, size_, feedback_);
  if (made.ok()) treatments_[spec] = made.value();
  return made;
}

Result<TreatmentPtr> ParameterTable::resolve(const ParameterRule& rule, const TreatmentPtr& own) {
  if (!rule.codec.empty()) return treatment("rules", rule.codec);
  if (rule.coarsest.empty()) return own;
  auto coarsest = treatment("rules", rule.coarsest);
  if (!coarsest.ok() || own->bits() < coarsest.value()->bits()) return coarsest;
  return own;
}

Error ParameterTable::use(const std::string& spec) {
  auto own = treatment("codec", spec);
  if (!own.ok()) return own.error();
  std::vector<TreatmentPtr> resolved;
  for (const Parameter& parameter : parameters_) {
    auto one = resolve(parameter.rule, own.value());
    if (!one.ok()) return one.error();
    resolved.push_back(one.value());
  }
  spec_ = spec;
  own_ = own.value();
  for (size_t i = 0; i < resolved.size(); ++i) parameters_[i].treatment = resolved[i];
  return {};
}

Result<TreatmentPtr> ParameterTable::treatment_for(const Parameter& parameter,
                                                   const std::string& spec) {
  auto own = treatment("codec", spec);
  if (!own.ok()) return own.error();
  return resolve(parameter.rule, own.value());
}

Error ParameterTable::use_for(Parameter& parameter, const std::string& spec) {
  auto resolved = treatment_for(parameter, spec);
  if (resolved.ok()) parameter.treatment = resolved.value();
  return resolved.error();
}

Error ParameterTable::add(const at::Tensor& tensor, std::string name, ParameterRule rule) {
  told_ = true;
  return insert(tensor, std::move(name), std::move(rule));
}

Error ParameterTable::insert(const at::Tensor& tensor, std::string name, ParameterRule rule) {
  check(own_ != nullptr, "a parameter before the first codec");
  if (tensor.is_complex()) rule = {std::string(kNoCodec), ""};
  auto treatment = resolve(rule, own_);
  if (!treatment.ok()) return treatment.error();
  Residual* loaded = nullptr;  // before its parameter was known
  if (!tensor.is_complex() && residuals_->all().contains(name)) {
    auto residual = residuals_->get(name, tensor.numel());
    if (!residual.ok()) return residual.error();
    loaded = residual.value();
    fill(*loaded, memory_order(as_tensor(*loaded), tensor));
  }
  parameters_.push_back(
      {tensor, std::move(name), std::move(rule), treatment.value(), loaded, nullptr, nullptr, {}});
  by_tensor_[tensor.unsafeGetTensorImpl()] = &parameters_.back();
  return {};
}

Result<Parameter*> ParameterTable::find(const at::Tensor& tensor) {
  const auto* key = tensor.unsafeGetTensorImpl();
  if (auto it = by_tensor_.find(key); it != by_tensor_.end()) return it->second;
  const std::string name = "parameter." + std::to_string(parameters_.size());
  if (told_) {
    TORCH_WARN_ONCE("ringdist: compress: a gradient of shape ", tensor.sizes(),
                    " is of no parameter of the model that was given: it is compressed without "
                    "rules, under the name ",
                    name);
  }
  const ParameterRule rule{tensor.numel() < kMinCompressed ? std::string(kNoCodec) : "", ""};
  if (Error error = insert(tensor, name, rule)) return error;
  return by_tensor_.at(key);
}

Error ParameterTable::provide_residual(Parameter& parameter) {
  if (parameter.residual != nullptr) return {};
  auto residual = residuals_->get(parameter.name, parameter.tensor.numel());
  if (residual.ok()) parameter.residual = residual.value();
  return residual.error();
}

Error ParameterTable::check_residual(const std::string& name, int64_t count) const {
  const auto refuse = [&](const std::string& what) {
    return Error(ErrorKind::kInvalidArgument,
                 "ringdist: compress: the residual of '" + name + "' " + what);
  };
  const std::string given = "has " + std::to_string(count) + " elements, ";
  if (const Parameter* known = named(name)) {
    if (known->tensor.is_complex()) return refuse("is that of a complex parameter, which has none");
    if (known->tensor.numel() != count)
      return refuse(given + "the parameter " + std::to_string(known->tensor.numel()));
  }
  const auto known = residuals_->all().find(name);
  if (known != residuals_->all().end() && known->second.values.size() != static_cast<size_t>(count))
    return refuse(given + "the one it would replace " +
                  std::to_string(known->second.values.size()));
  return {};
}

Error ParameterTable::load_residual(const std::string& name, const at::Tensor& values) {
  auto residual = residuals_->get(name, values.numel());
  if (!residual.ok()) return residual.error();
  const Parameter* known = named(name);
  fill(*residual.value(), known != nullptr ? memory_order(values, known->tensor) : values);
  residual.value()->owed = true;
  for (Parameter& parameter : parameters_)
    if (parameter.name == name)
      if (Error error = provide_residual(parameter)) return error;
  return {};
}

std::vector<std::pair<std::string, at::Tensor>> ParameterTable::saved() const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const auto& [name, residual] : residuals_->all()) {
    const at::Tensor copy = as_tensor(residual);
    const Parameter* known = named(name);
    out.emplace_back(name, known != nullptr ? row_major(copy, known->tensor) : copy);
  }
  return out;
}

}  // namespace ringdist
