#include "src/run/verbs/guard.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>
#include <thread>

#include "src/comm/mpi_comm.h"
#include "src/core/check.h"
#include "src/core/helpers/helpers.h"
#include "src/core/json.h"
#include "src/core/process/heap.h"
#include "src/core/process/stop_signal.h"
#include "src/core/process/local_parent.h"
#include "src/core/process/out_of_memory.h"
#include "src/core/process/progress.h"
#include "src/core/process/results.h"
#include "src/run/plan/memory/memory_advice.h"

namespace temper {
namespace {

/// Rank as the launcher tells it: usable before MPI is up, when all ranks fail in the same way.
int launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return 0;
}

/// mpirun ends all ranks as soon as the first has ended, so none may end before rank 0 has told what all have
/// found. Comes back only where rank 0 does not: it has not found it, or is very late.
void leave_it_to_rank_0() {
  constexpr auto kPatience = std::chrono::seconds(5);
  std::this_thread::sleep_for(kPatience);
}

/// Which rank's log goes to stderr, too, is the run's affair: an error is printed here, once.
void write_to_log_file(const std::string& block) {
  const auto logger = spdlog::get("temper");
  if (!logger) return;
  for (const spdlog::sink_ptr& sink : logger->sinks()) {
    if (std::dynamic_pointer_cast<spdlog::sinks::stderr_color_sink_mt>(sink)) continue;
    try {
      sink->log({logger->name(), spdlog::level::critical, block});
      sink->flush();
    } catch (const spdlog::spdlog_ex&) {  // the disk that is full is often the log's, too; stderr has it
    }
  }
}

int report(Exit code, const std::string& text) {
  const char* name = std::getenv("OMPI_COMM_WORLD_RANK");
  const std::string block = (name ? fmt::format("temper: rank {}: ", name) : "temper: ") + text;
  write_to_log_file(block);
  // As far as one can know, every rank has found it: MPI ends after an error only where all leave together.
  const bool together = code == Exit::usage || code == Exit::data || code == Exit::numerics;
  const bool alike = mpi_has_ended() ? together : code == Exit::usage && !mpi_is_up();
  const bool by_mpirun = name != nullptr;
  if (alike && by_mpirun && launcher_rank() != 0) leave_it_to_rank_0();
  if (launcher_rank() == 0 || !alike || by_mpirun) {
    std::fprintf(stderr, "%s\n", block.c_str());
    std::fflush(stderr);
  }
  tell_local_parent(RankWord::failed, static_cast<int>(code));
  abort_all_ranks(code);
  return static_cast<int>(code);
}

/// The error has its exit code: a stdout that takes nothing changes nothing about it.
void print_json(const Problem& p) {
  const Json error{
      {"key", ""},
      {"message", p.what + (p.why.empty() ? "" : ": " + p.why) + (p.fix.empty() ? "" : "; " + p.fix)},
      {"legal", Json::array()},
      {"where", p.where}};
  try {
    write_results(dump_json_line({{"ok", false}, {"errors", Json::array({error})}}) + "\n");
  } catch (const Error&) {
  }
}

}  // namespace

bool asks_for_json(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
}

int run_guarded(const std::function<int()>& body, bool json) {
  return_large_blocks();
  give_hangup_back();
  const auto ended = [json](const Error& e) {
    if (json) print_json(e.problem());
    return report(e.code(), e.what());
  };
  const auto without_memory = [&](const Error& e, MemoryUse use) {
    Problem problem = e.problem();
    problem.fix = memory_advice(use) + (problem.fix.empty() ? "" : "; " + problem.fix);
    return ended({e.code(), std::move(problem)});
  };
  try {
    const int code = body();
    finish_results();
    tell_local_parent(RankWord::done, code);
    return code;
  } catch (const OutOfMemory& e) {
    return without_memory(e, e.use());
  } catch (const Error& e) {
    return ended(e);
  } catch (const std::bad_alloc&) {
    return without_memory(out_of_memory({}), MemoryUse::any);
  } catch (const std::system_error& e) {  // a thread finds no room for its stack
    const bool full =
        e.code() == std::errc::resource_unavailable_try_again || e.code() == std::errc::not_enough_memory;
    if (full) return without_memory(out_of_memory({}), MemoryUse::any);
    return ended({Exit::internal, {.what = fmt::format("internal error: {}", e.what())}});
  } catch (const std::exception& e) {
    return ended({Exit::internal, {.what = fmt::format("internal error: {}", e.what())}});
  }
}

int tell_of_planned(const std::function<int()>& body,
                    const std::function<std::string(std::string_view phase)>& planned) {
  const auto tell = [&](Problem problem, MemoryUse use) {
    const Phase phase = progress_state().phase;
    problem.why += "; " + planned(*phase.in_plan ? phase_text(phase.in_plan) : phase_text(phase.name));
    throw OutOfMemory(std::move(problem), use);
  };
  try {
    return body();
  } catch (const OutOfMemory& e) {
    tell(e.problem(), e.use());
  } catch (const std::bad_alloc&) {
    tell(out_of_memory({}).problem(), MemoryUse::any);
  }
  return 0;
}

int retry_after_loss(const std::function<int()>& body, const std::function<bool()>& has_checkpoint) {
  const auto ask_again = [&](const Error& lost) {
    if (progress_state().phase.order <= Phase::load.order || !has_checkpoint()) return;
    Problem problem = lost.problem();
    problem.fix = "start the same command again, it goes on from the newest checkpoint; " + problem.fix;
    fail(Exit::retry, std::move(problem));
  };
  try {
    return body();
  } catch (const DeviceLost& lost) {
    ask_again(lost);
    throw;
  } catch (const KeeperLost& lost) {
    ask_again(lost);
    throw;
  }
}

}  // namespace temper
