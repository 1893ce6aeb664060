#pragma once
// The one place that catches. An error becomes one block on stderr and, in a job of several ranks, MPI_Abort
// with the error's exit code, so that no rank waits for one that is gone.

#include <functional>
#include <string>
#include <string_view>

namespace temper {

/// Returns the process's exit code: that of `body`, or of the error it threw. With `json` an error is a
/// result, too: one object on stdout, {"ok": false, "errors": [{"key", "message", "legal", "where"}]}.
int run_guarded(const std::function<int()>& body, bool json = false);

/// The arguments ask for JSON.
bool asks_for_json(int argc, const char* const* argv);

/// Runs the body of a training run: a GPU, or a keeper of reward programs, that is lost once its steps have
/// begun is Exit::retry where there is a checkpoint to go on from, as a rank that is lost (comm/watch/watch.h).
int retry_after_loss(const std::function<int()>& body, const std::function<bool()>& has_checkpoint);

/// Runs a body whose memory was planned: where it gets none, the error has what `planned` says of the phase
/// that the rank is in (its row in the table of memory: "generate", "train").
int tell_of_planned(const std::function<int()>& body,
                    const std::function<std::string(std::string_view phase)>& planned);

}  // namespace temper
