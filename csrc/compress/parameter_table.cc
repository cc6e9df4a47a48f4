#include "compress/parameter_table.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codec/none.h"
#include "compress/compression_options.h"

namespace ringdist {

// The mean counts a spike as the limited norm. So one spike barely raises the limit, while a
// lasting increase of norms raises it step by step.
double GradientClipper::factor(double norm, double limit) {
  if (!std::isfinite(norm) || norm == 0) return 1;
  const bool spike = steps_ >= kWarmup && norm > limit * mean_;
  const double kept = spike ? limit * mean_ : norm;
  // In the first steps this is a plain mean, so that the first step does not weigh more than
  // others.
  const double weight = std::max(1 - kKeep, 1.0 / static_cast<double>(++steps_));
  const double factor = kept / norm;
  mean_ += weight * (kept - mean_);
  return factor;
}

namespace {

// Formats sizes as "[64, 3]".
std::string text(const std::vector<int64_t>& sizes) {
  std::string out;
  for (const int64_t size : sizes) out += (out.empty() ? "" : ", ") + std::to_string(size);
  return "[" + out + "]";
}

}  // namespace

const Parameter* ParameterTable::named(const std::string& name) const {
  const auto it = std::ranges::find(parameters_, name, &Parameter::name);
  return it == parameters_.end() ? nullptr : &*it;
}

Result<CompressionMethodPtr> ParameterTable::method(std::string_view argument,
                                                    const std::string& spec) {
  if (auto it = methods_.find(spec); it != methods_.end()) return it->second;
  auto made = make_compression_method(argument, spec, size_, feedback_);
  if (made.ok()) methods_[spec] = made.value();
  return made;
}

Result<CompressionMethodPtr> ParameterTable::resolve(const ParameterRule& rule,
                                                     const CompressionMethodPtr& own) {
  if (!rule.codec.empty()) return method("rules", rule.codec);
  if (rule.coarsest.empty()) return own;
  auto coarsest = method("rules", rule.coarsest);
  if (!coarsest.ok() || own->bits() < coarsest.value()->bits()) return coarsest;
  return own;
}

// All methods are made before the first is set, so that an error changes nothing.
Error ParameterTable::use(const std::string& spec) {
  auto own = method("codec", spec);
  if (!own.ok()) return own.error();
  std::vector<CompressionMethodPtr> resolved;
  for (const Parameter& parameter : parameters_) {
    auto one = resolve(parameter.rule, own.value());
    if (!one.ok()) return one.error();
    resolved.push_back(one.value());
  }
  own_ = own.value();
  for (size_t i = 0; i < resolved.size(); ++i) parameters_[i].method = resolved[i];
  return {};
}

Result<CompressionMethodPtr> ParameterTable::method_for(const Parameter& parameter,
                                                        const std::string& spec) {
  auto own = method("codec", spec);
  if (!own.ok()) return own.error();
  return resolve(parameter.rule, own.value());
}

Error ParameterTable::use_for(Parameter& parameter, const std::string& spec) {
  auto resolved = method_for(parameter, spec);
  if (resolved.ok()) parameter.method = resolved.value();
  return resolved.error();
}

Result<Parameter*> ParameterTable::add(ParameterInfo info, std::string name, ParameterRule rule) {
  told_ = true;
  return insert(std::move(info), std::move(name), std::move(rule));
}

Result<Parameter*> ParameterTable::insert(ParameterInfo info, std::string name,
                                          ParameterRule rule) {
  check(own_ != nullptr, "a parameter before the first codec");
  if (info.complex) rule = {std::string(kNoCodec), ""};
  auto method = resolve(rule, own_);
  if (!method.ok()) return method.error();
  Residual* loaded = nullptr;  // it was loaded before the parameter was added
  if (!info.complex && residuals_->all().contains(name)) {
    auto residual = residuals_->get(name, info.order.count(), *info.memory);
    if (!residual.ok()) return residual.error();
    loaded = residual.value();
    const auto values = info.order.from_row_major(loaded->values.on_host());
    loaded->replace(FloatBuffer(*info.memory, values.size()));
    loaded->values.assign(values);
  }
  const ParameterKey key = info.key;
  parameters_.push_back(
      {std::move(info), std::move(name), std::move(rule), method.value(), loaded, {}, {}, {}});
  return by_key_[key] = &parameters_.back();
}

Result<Parameter*> ParameterTable::find(ParameterKey key,
                                        const std::function<ParameterInfo()>& describe) {
  if (auto it = by_key_.find(key); it != by_key_.end()) return it->second;
  ParameterInfo info = describe();
  std::string name = "parameter." + std::to_string(parameters_.size());
  if (told_)
    warn_("ringdist: compress: a gradient of shape " + text(info.order.sizes()) +
          " is of no parameter of the model that was given: it is compressed without rules, under "
          "the name " +
          name);
  const bool small = info.order.count() < min_compressed_;
  return insert(std::move(info), std::move(name), {small ? std::string(kNoCodec) : "", ""});
}

Error ParameterTable::provide_residual(Parameter& parameter) {
  if (parameter.residual != nullptr) return {};
  auto residual =
      residuals_->get(parameter.name, parameter.info.order.count(), *parameter.info.memory);
  if (residual.ok()) parameter.residual = residual.value();
  return residual.error();
}

Error ParameterTable::check_residual(const std::string& name, int64_t count) const {
  const auto refuse = [&](const std::string& what) {
    return refusal_to_compress(ErrorKind::kInvalidArgument,
                               "the residual of '" + name + "' " + what);
  };
  const std::string given = "has " + std::to_string(count) + " elements, ";
  if (const Parameter* known = named(name)) {
    if (known->info.complex) return refuse("is that of a complex parameter, which has none");
    if (const int64_t own = known->info.order.count(); own != count)
      return refuse(given + "the parameter " + std::to_string(own));
  }
  const auto known = residuals_->all().find(name);
  if (known != residuals_->all().end() && known->second.values.size() != static_cast<size_t>(count))
    return refuse(given + "the one it would replace " +
                  std::to_string(known->second.values.size()));
  return {};
}

Error ParameterTable::load_residual(const std::string& name, std::span<const float> values) {
  const Parameter* const known = named(name);
  auto residual =
      residuals_->get(name, std::ssize(values), known ? *known->info.memory : host_memory());
  if (!residual.ok()) return residual.error();
  if (known != nullptr)
    residual.value()->values.assign(known->info.order.from_row_major(values));
  else
    residual.value()->values.assign(values);
  residual.value()->nonzero = true;
  for (Parameter& parameter : parameters_)
    if (parameter.name == name)
      if (Error error = provide_residual(parameter)) return error;
  return {};
}

std::vector<NamedResidual> ParameterTable::saved() const {
  std::vector<NamedResidual> out;
  for (const auto& [name, residual] : residuals_->all()) {
    const Parameter* known = named(name);
    const bool ordered = known != nullptr && !known->info.complex;
    std::vector<float> values = residual.values.on_host();
    out.emplace_back(name, ordered ? known->info.order.to_row_major(values) : std::move(values));
  }
  return out;
}

}  // namespace ringdist
