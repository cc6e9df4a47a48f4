// What an argument raises that is not accepted. In Python these are torch_ringdist.ArgumentError
// and torch_ringdist.NotSupportedError, which are RuntimeErrors as well, as gloo raises them; where
// PyTorch translates by itself, ValueError and TypeError.
#pragma once

#include <c10/util/Exception.h>

namespace ringdist {

class ArgumentError final : public c10::ValueError {
  using ValueError::ValueError;
};

class NotSupportedError final : public c10::TypeError {
  using TypeError::TypeError;
};

}  // namespace ringdist
