// The Context of this process: made by the first group, shared by all, stopped at exit. A
// forked child makes its own.
#pragma once

#include <memory>
#include <string>

#include "engine/context/context.h"

namespace ringdist {

// Errors: what the system refuses, or options that concern the process and differ from those that
// the Context was made with. Any thread.
Result<std::shared_ptr<Context>> process_context(const Config& config,
                                                 const std::string& store_host);

// Nothing if no group has been created yet. Any thread.
std::shared_ptr<Context> existing_process_context();

// What the operations of this process do from now on goes there, also of groups that are yet to be
// made; null: nowhere any more. False: it goes somewhere else already. Any thread.
bool record_process(std::shared_ptr<TraceRecorder> recorder);
bool process_is_recorded();  // by that

}  // namespace ringdist
