#pragma once
// One port for the ranks of a host: the first one opens it and hands it to the others.

#include <memory>
#include <string>

#include "src/agents/server/shared_port.h"
#include "src/comm/comm.h"

namespace temper {

/// Null for a host with one rank, which opens its port alone. `host`: the ranks of this one; all call it.
/// Throws as Listener, and Exit::environment where the ranks cannot reach each other on their host.
std::shared_ptr<SharedPort> port_of_host(Comm& host, const std::string& address, int port,
                                         const std::string& port_key);

}  // namespace temper
