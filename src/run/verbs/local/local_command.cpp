#include "src/run/verbs/local/local_command.h"

#include <cstdio>
#include <filesystem>
#include <optional>

#include "src/comm/alone/launcher.h"
#include "src/config/load.h"
#include "src/core/device.h"
#include "src/core/file.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/run/local/local_job.h"
#include "src/run/record/run_log.h"

namespace temper {
namespace {

constexpr const char* kOption = "--local";

void require_no_launcher() {
  const std::string variable = variable_of_launcher();
  if (variable.empty()) return;
  fail(Exit::usage, {.what = "--local under a launcher",
                     .where = kOption,
                     .why = variable + " is set: this process is a rank that mpirun or srun has started",
                     .fix = "leave --local out, or start the program itself without a launcher"});
}

/// Each rank of a run has a GPU of its own; other verbs let ranks share.
void say_few_gpus(const std::string& device, int ranks, bool refused) {
  if (device == "cpu") return;
  const auto gpus = static_cast<int>(device::find_gpus().gpus.size());
  if (gpus == 0 || gpus >= ranks) return;
  if (refused)
    fail(
        Exit::usage,
        {.what = "fewer GPUs than ranks",
         .where = fmt::format("{} {}", kOption, ranks),
         .why = fmt::format("this host has {} that can be used (H100 or H200, CUDA_VISIBLE_DEVICES)", gpus),
         .fix = fmt::format("{} {}, or run.device=cpu; for tests cluster.shared_gpus=allow", kOption, gpus)});
  std::fprintf(stderr, "temper: warning: %d ranks share %d GPUs\n", ranks, gpus);
}

/// What is known of a run before it starts.
void describe_run(const Config& config, LocalJob& job) {
  const std::string root = join_path(config.run.dir, config.run.name);
  job.has_checkpoint = [root] { return !list_checkpoints(join_path(root, "checkpoints")).empty(); };
  job.log_of = [root](int rank) {
    const std::string log = rank_log_file(root, rank);
    return path_exists(log) ? log : "";
  };
}

bool reads_stdin(const CommandLine& line) {
  for (const auto& [name, values] : line.options)
    for (const std::string& value : values)
      if (value == "-" && name != "--prompt") return true;
  return false;
}

}  // namespace

std::vector<std::string> words_of_rank(int argc, const char* const* argv) {
  std::vector<std::string> words;
  bool options = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    options = options && word != "--";
    if (options && word == kOption)
      ++i;
    else if (!options || !word.starts_with(std::string(kOption) + "="))
      words.push_back(word);
  }
  return words;
}

int run_locally(const CommandLine& line, int argc, const char* const* argv) {
  require_no_launcher();
  const auto ranks = static_cast<int>(line.integer(kOption, 1));
  if (ranks == 1) return find_verb(line.verb).run(line);
  LocalJob job;
  job.ranks = ranks;
  job.reads_stdin = reads_stdin(line);
  job.command = words_of_rank(argc, argv);
  job.command.insert(job.command.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
  if (line.verb == "train" || line.verb == "eval") {
    const Config config = load_config(line.positional, line.overrides).config;
    say_few_gpus(config.run.device, ranks,
                 config.cluster.shared_gpus == "error" && config.cluster.idle_ranks == "error");
    if (line.verb == "train") describe_run(config, job);
  } else {
    say_few_gpus(line.text("--device", "auto"), ranks, /*refused=*/false);
  }
  return run_local_job(job);
}

}  // namespace temper
