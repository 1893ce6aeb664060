#include "src/core/helpers/launcher_variables.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace temper {
namespace {

/// Those of a job (SLURM_JOB_ID, SLURM_CPUS_ON_NODE) stay: what is started may look at them.
constexpr std::array<std::string_view, 14> kBegin{
    "OMPI_", "PMIX_",     "PMI_",        "PRTE_",       "ORTE_",     "HYDI_",     "HYDRA_",
    "PMI2_", "MPI_LOCAL", "SLURM_STEP_", "SLURM_SRUN_", "SLURM_PMI", "SLURM_MPI", "MPIR_"};
constexpr std::array<std::string_view, 7> kWhole{
    "SLURM_PROCID", "SLURM_LOCALID",           "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID",
    "SLURM_STEPID", "SLURM_LAUNCH_NODE_IPADDR"};

}  // namespace

bool is_launcher_variable(std::string_view name) {
  return std::ranges::any_of(kBegin, [&](std::string_view begin) { return name.starts_with(begin); }) ||
         std::ranges::find(kWhole, name) != kWhole.end();
}

void remove_launcher_variables() {
  std::vector<std::string> names;
  for (char** at = environ; at && *at; ++at) {
    const std::string_view variable = *at;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (is_launcher_variable(name)) names.emplace_back(name);
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

}  // namespace temper
