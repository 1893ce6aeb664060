#include "src/run/session/step_line.h"

#include <sys/resource.h>

#include "src/core/log.h"
#include "src/run/plan/memory/memory.h"
#include "src/train/flops.h"

namespace temper {
namespace {

/// A save and an export hold what is held between phases, and their window: their step's line is written
/// before them. The largest over the trainer ranks; other ranks told of theirs in their notes.
void record_memory(Journal& journal, MemoryLedger& memory, const Saves& saves, Comm& trainers) {
  if (saves.checkpoint != Saving::none) journal.add(memory.metrics("save", kSaveWindow));
  if (saves.exported) journal.add(memory.metrics("export", kExportWindow));
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  journal.set("perf/cpu_memory_used_gb", static_cast<double>(usage.ru_maxrss) / 1048576.0);
  std::vector<std::string> names = journal.names("perf/peak_gb/");
  names.push_back("perf/cpu_memory_used_gb");
  for (const std::string& name : names)
    journal.set(name, trainers.all_reduce_max(journal.value(name), "memory of a phase, max over ranks"));
}

}  // namespace

void finish_step(RunSteps& run, int64_t step, double seconds) {
  RunRank& rank = run.rank;
  Journal& journal = *rank.journal;
  Comm& trainers = *rank.links.trainers;
  record_memory(journal, *rank.memory, run.saver.due(), trainers);
  journal.set("timing_s/step", seconds);
  journal.set("perf/time_per_step", seconds);
  if (rank.links.device == Device::cuda && journal.value("timing_s/update_actor") > 0)
    journal.set("perf/mfu", journal.value("perf/update_tflop") / journal.value("timing_s/update_actor") /
                                (kPeakFlops * 1e-12 * static_cast<double>(trainers.size())));
  journal.set("perf/throughput", journal.value("perf/total_num_tokens") / seconds / rank.task.plan.num_ranks);
  log::info("{}", journal.finish_step(step));
}

bool finish_begun_step(RunSteps& run) {
  RunRank& rank = run.rank;
  const ResumePoint& resume = rank.files.resume;
  if (!rank.trains() || !resume.unsaid) return true;
  const Stopwatch watch;
  const Json values = parse_json(*resume.unsaid, resume.checkpoint + ": " + kUnsaid);
  for (const auto& [name, value] : values.items())
    if (value.is_number()) rank.journal->set(name, value.get<double>());
  for (size_t i = 0; i < rank.roles.size(); ++i)
    if (rank.placement.roles[i].row->duty == Duty::observes && !rank.roles[i]->phase(resume.step))
      return false;
  run.saver.decide_late(resume.step);
  finish_step(run, resume.step, watch.seconds());
  if (!rank.standings.reached()) run.saver.save_step(resume.step);
  return true;
}

}  // namespace temper
