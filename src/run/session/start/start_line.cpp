#include "src/run/session/start/start_line.h"

#include <spdlog/fmt/fmt.h>

#include <cstdlib>

#include "src/core/log.h"
#include "src/core/process/local_parent.h"
#include "src/core/text/short_number.h"
#include "src/rl/registry.h"
#include "src/run/plan/run_options.h"

namespace temper {
namespace {

std::string data_text(const RunTask& task, const RunInputs& inputs) {
  if (task.replay()) return count_text(std::ssize(task.replay_files), "recorded step");
  std::string text;
  for (const DataSource& source : task.config().data.train) text += (text.empty() ? "" : ", ") + source.path;
  const int64_t lines = inputs.num_lines();
  return lines > 0 ? text + fmt::format(" ({})", count_text(lines, "line")) : text;
}

std::string batch_text(const RunPlan& plan) {
  const BatchPlan& batch = plan.batch;
  const std::string samples =
      batch.samples_per_prompt > 1 ? fmt::format(" x {} samples", batch.samples_per_prompt) : "";
  const int64_t updates = batch.updates_per_step * batch.epochs_per_step;
  return fmt::format("{}{}{}", count_text(batch.prompts_per_step, plan.generates ? "prompt" : "line"),
                     samples, updates > 1 ? fmt::format(", {} updates each", updates) : "");
}

std::string steps_text(int64_t first, int64_t last) {
  return first > last ? fmt::format("all {} are done, ", count_text(last, "step"))
                      : fmt::format("steps {} to {} of ", first, last);
}

const char* how_to_stop() {
  if (has_local_parent()) return "; Ctrl-C saves and stops";
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  return by_mpirun ? "; kill -USR1 of mpirun saves and stops, Ctrl-C does not save" : "";
}

}  // namespace

std::string start_text(const RunTask& task, const RunInputs& inputs, const StartFacts& facts) {
  const RunPlan& plan = task.plan;
  const Config& config = task.config();
  return fmt::format("{} of {} ({} parameters) on {}: {}{}; {}, {}, {}, {}{}", config.algorithm.name,
                     config.model.path, grouped_number(facts.parameters), data_text(task, inputs),
                     steps_text(facts.first_step, task.last_step()), batch_text(plan),
                     count_text(plan.num_ranks, "rank"), facts.threads, device_name(plan.device),
                     dtype_name(plan.dtype), how_to_stop()) +
         fmt::format("\n  {} in all; {}{}", count_text(plan.batch.updates_total, "update"),
                     make_algorithm(config.algorithm, config.reward)->describe(),
                     facts.digest.empty() ? "" : "; weights of digest " + facts.digest) +
         (plan.aux_losses.empty() ? "" : "; auxiliary losses of routers: " + plan.aux_losses);
}

std::string carriers_text(RunLinks& links) {
  std::map<std::string, std::string> names_by;  // carrier
  const Mesh& mesh = links.meshes.trainer();
  for (const AxisRow& row : kAxes)
    for (const AxisSet axes : kTensorGroups)
      if (links.device == Device::cuda && mesh.grid().wide(axes).has(row.axis)) {
        std::string& names = names_by[mesh.tensors(axes).carrier()];
        if (names.find(row.name) == std::string::npos)
          names += (names.empty() ? "" : ", ") + std::string(row.name);
      }
  std::string text;
  for (const auto& [carrier, names] : names_by)
    text += fmt::format("; tensors over {} by {}", names, carrier);
  if (const size_t readers = links.weights.num_readers(); readers > 0)
    text += fmt::format("; weights read out of this GPU's memory by {}",
                        count_text(static_cast<int64_t>(readers), "rank"));
  return text;
}

Json start_event(const RunTask& task, const RunInputs& inputs, const StartFacts& facts) {
  const RunPlan& plan = task.plan;
  Json event{{"ranks", plan.num_ranks},
             {"device", device_name(plan.device)},
             {"dtype", dtype_name(plan.dtype)},
             {"parameters", facts.parameters},
             {"updates", plan.batch.updates_total}};
  if (!plan.aux_losses.empty()) event["aux_losses"] = plan.aux_losses;
  if (inputs.num_lines() > 0) event["lines"] = inputs.num_lines();
  const PromptFrame frame = inputs.prompt_frame(task.config().data);
  if (!frame.before.empty() || !frame.after.empty())
    event["prompt_frame"] = Json::array({frame.before, frame.after});
  return event;
}

void tell_idle_keys(const RunTask& task) {
  if (task.replay()) return;
  const std::string changed = changed_sampling_text(task.config().rollout);
  if (task.plan.generates && !changed.empty()) log::warn("{}", changed);
  for (const std::string& text : task.plan.idle_keys) log::warn("{}", text);
}

}  // namespace temper
