#include "codec/residual.h"

namespace ringdist {

ResidualSpan Residual::begin() {
  if (next_.empty() && !values.empty()) next_ = FloatBuffer(*values.memory(), values.size());
  return {values.data(), next_.data(), values.size()};
}

void Residual::commit(bool is_nonzero) {
  std::swap(values, next_);
  nonzero = is_nonzero;
}

double Residual::squared_norm() const {
  if (values.empty()) return 0;
  return values.memory()->squared_norm(DType::kFloat32, values.bytes(), nullptr);
}

void Residual::replace(FloatBuffer buffer) {
  values = std::move(buffer);
  next_ = {};
}

Result<Residual*> ResidualStore::get(const std::string& name, int64_t count,
                                     GradientMemory& memory) {
  Residual& residual = residuals_[name];
  const auto wanted = static_cast<size_t>(count);
  if (residual.values.empty()) residual.values = FloatBuffer(memory, wanted);
  if (residual.values.size() != wanted)
    return Error(ErrorKind::kInvalidArgument, "the residual of parameter '" + name + "' has " +
                                                  std::to_string(residual.values.size()) +
                                                  " elements, the parameter has " +
                                                  std::to_string(count));
  return &residual;
}

void ResidualStore::scale(float factor) {
  for (auto& [name, residual] : residuals_)
    if (residual.nonzero)
      residual.values.memory()->scale(DType::kFloat32, residual.values.bytes(), factor);
}

void ResidualStore::clear() {
  for (auto& [name, residual] : residuals_) {
    residual.values.assign(std::vector<float>(residual.values.size()));
    residual.nonzero = false;
  }
}

double ResidualStore::squared_norm() const {
  double out = 0;
  for (const auto& [name, residual] : residuals_)
    if (residual.nonzero) out += residual.squared_norm();
  return out;
}

bool may_use_feedback(const CodecPair& codecs) {
  return codecs.contribution->contraction() && codecs.result->contraction();
}

bool feedback_by_default(const CodecPair& codecs) {
  return may_use_feedback(codecs) &&
         (codecs.contribution->feedback_by_default() || codecs.result->feedback_by_default());
}

}  // namespace ringdist
