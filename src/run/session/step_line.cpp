#include "src/run/session/step_line.h"

#include <sys/resource.h>

#include "src/core/log.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/session/saving.h"
#include "src/run/session/stopping.h"
#include "src/train/flops.h"

namespace temper {
namespace {

/// A save and an export hold what is held between phases, and their window: their step's line is written
/// before them. The largest over the trainer ranks; other ranks told of theirs in their notes.
void record_memory(RunRank& rank) {
  Journal& journal = *rank.journal;
  if (rank.saves.checkpoint != Saving::none) journal.add(rank.memory->metrics("save", kSaveWindow));
  if (rank.saves.exported) journal.add(rank.memory->metrics("export", kExportWindow));
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  journal.set("perf/cpu_memory_used_gb", static_cast<double>(usage.ru_maxrss) / 1048576.0);
  std::vector<std::string> names = journal.names("perf/peak_gb/");
  names.push_back("perf/cpu_memory_used_gb");
  for (const std::string& name : names)
    journal.set(name,
                rank.trainers->all_reduce_max(journal.value(name), "memory of a phase, max over ranks"));
}

}  // namespace

void finish_step(RunRank& rank, int64_t step, double seconds) {
  Journal& journal = *rank.journal;
  record_memory(rank);
  journal.set("timing_s/step", seconds);
  journal.set("perf/time_per_step", seconds);
  if (rank.device == Device::cuda)
    journal.set("perf/mfu", journal.value("perf/update_tflop") / journal.value("timing_s/update_actor") /
                                (kPeakFlops * 1e-12 * static_cast<double>(rank.trainers->size())));
  journal.set("perf/throughput", journal.value("perf/total_num_tokens") / seconds / rank.task.plan.num_ranks);
  log::info("{}", journal.finish_step(step));
}

bool finish_begun_step(RunRank& rank) {
  if (!rank.trains() || !rank.resume.unsaid) return true;
  const int64_t step = rank.resume.step;
  const Stopwatch watch;
  const Json values = parse_json(*rank.resume.unsaid, rank.resume.checkpoint + ": " + kUnsaid);
  for (const auto& [name, value] : values.items())
    if (value.is_number()) rank.journal->set(name, value.get<double>());
  for (size_t i = 0; i < rank.roles.size(); ++i)
    if (rank.placement.roles[i].row->duty == Duty::observes && !rank.roles[i]->phase(step)) {
      stop_after(rank, step);
      return false;
    }
  finish_step(rank, step, watch.seconds());
  return true;
}

}  // namespace temper
