// Stores that processes of a group serve when the one that it began with is lost: c10d's TCPStore.
#pragma once

#include <memory>

#include "rendezvous/store_server.h"

namespace ringdist {

// The process'. What it has offered stays for as long as the process does.
std::shared_ptr<StoreServer> process_store_server();

}  // namespace ringdist
