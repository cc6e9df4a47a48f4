// One completion for several sends of the same message.
#pragma once

#include <memory>
#include <utility>

#include "transport/transport.h"

namespace ringdist {

// To be called `count` times (at least one); the last calls `done`, with an Error if any had one.
inline SendDone fan_out(size_t count, SendDone done) {
  struct Shared {
    size_t left;
    Error error;
    SendDone done;
  };
  auto shared = std::make_shared<Shared>(Shared{count, {}, std::move(done)});
  return [shared](const Error& error) {
    if (error) shared->error = error;
    if (--shared->left == 0) shared->done(shared->error);
  };
}

}  // namespace ringdist
