#pragma once
// Answers as the HTTP library takes them.

#include <microhttpd.h>

#include <vector>

#include "src/agents/server/http_call.h"
#include "src/agents/server/request_head.h"

namespace temper {

/// The header lines of a request; they lie in the connection's memory.
std::vector<HeaderLine> header_lines(MHD_Connection* connection);

// MHD_NO: the connection is to be closed.
MHD_Result send_refusal(MHD_Connection* connection, const HttpRefusal& refusal, bool close);
/// The call's body is sent from where it lies.
MHD_Result send_whole(MHD_Connection* connection, HttpCall& call);
MHD_Result send_stream(MHD_Connection* connection, HttpCall& call);

}  // namespace temper
