// The Context of this process. The first group makes it, all groups share it, and it is stopped at
// exit. A forked child makes its own.
#pragma once

#include <memory>
#include <string>

#include "engine/context/context.h"

namespace ringdist {

// Returns the Context; makes it if there is none. `store_host` is the host of the group's store;
// for the first group it determines the network interface. Fails with the errors of
// Context::create(), and with kInvalidArgument if options that concern the process differ from
// those of the first group. Any thread.
Result<std::shared_ptr<Context>> process_context(const Config& config,
                                                 const std::string& store_host);

// Returns null if no group has been created yet. Any thread.
std::shared_ptr<Context> existing_process_context();

// Records what the operations of this process do from this call on, in all groups, also in later
// ones. Null ends the recording. Returns false if another recorder is active. Any thread.
bool record_process(std::shared_ptr<TraceRecorder> recorder);
bool process_is_recorded();  // record_process() has set a recorder

}  // namespace ringdist
