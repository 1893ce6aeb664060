#pragma once
// SIGTERM, SIGINT and SIGUSR1 ask a run to save and leave at the end of the step (exit code 75); a second
// SIGINT or SIGTERM ends the process at once. The handler only sets a flag.

namespace temper {

void install_stop_signals();
bool stop_requested();

}  // namespace temper
