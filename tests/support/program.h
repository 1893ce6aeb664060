#pragma once
// The program itself, run as a user runs it: a folder of its own, `temper` or `mpirun -n N temper` in it, the
// exit code, what was printed, what the run folder holds.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "tests/support/temp_dir.h"

namespace temper {

inline constexpr const char* kTinyQwen3 = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

/// Begins a run among the arguments of a test program that makes several (tests/support/run_list.h).
inline constexpr const char* kNextRun = "--run";

/// How often a text stands in another one.
inline int64_t times_in(const std::string& all, const std::string& text) {
  int64_t times = 0;
  for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++times;
  return times;
}

class Program {
 public:
  /// Tests of the CPU backend mean the same on a machine with a GPU.
  explicit Program(const std::string& temper = "build/temper")
      : temper_(std::filesystem::absolute(temper).string()) {
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  }

  const TempDir& folder() const { return folder_; }
  const std::string& temper() const { return temper_; }
  std::string path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const { write_file_atomic(path(name), text); }
  std::string read(const std::string& name) const { return read_file(path(name), int64_t{1} << 30); }

  /// Runs a shell command in the folder. Returns its exit code; -1 when a signal ended it.
  int shell(const std::string& command) const {
    const std::string line = fmt::format("cd {} && {{ {} ; }} > output.log 2>&1", folder_.path(), command);
    // Without /sys (a chroot) hwloc says so on stderr, and tests look at what temper says there.
    ::setenv("HWLOC_HIDE_ERRORS", "2", 1);
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// `temper ARGUMENTS` without mpirun.
  int run(const std::string& arguments) const { return shell(temper_ + " " + arguments); }
  int run_ranks(int ranks, const std::string& arguments) const { return shell(mpirun(ranks, arguments)); }
  /// The runs ("train ...") one after the other, by ranks that are started once. The exit code of the first
  /// that fails, with which it ends.
  int run_ranks_each(int ranks, const std::vector<std::string>& runs) const {
    std::string command = std::filesystem::canonical("/proc/self/exe").string();
    for (const std::string& run : runs) command += fmt::format(" {} {}", kNextRun, run);
    return shell(by_mpirun(ranks, command));
  }
  std::string mpirun(int ranks, const std::string& arguments) const {
    return by_mpirun(ranks, temper_ + " " + arguments);
  }
  /// What the last command printed, both streams.
  std::string output() const { return read("output.log"); }

  /// A model folder of random weights, with the tokenizer in tests/golden/tokenizer/minimind (6,400 ids).
  int init_model(const std::string& name, const char* config = kTinyQwen3) const {
    const std::string tokenizer = std::filesystem::absolute("tests/golden/tokenizer/minimind").string();
    write(name + ".config.json", config);
    return run(
        fmt::format("init --config {0}.config.json --out {0} --seed 1 --tokenizer {1}", name, tokenizer));
  }

  std::vector<Json> json_lines(const std::string& name) const {
    const std::string all = read(name);
    std::vector<Json> lines;
    for (size_t at = 0, end; at < all.size(); at = end + 1) {
      end = std::min(all.find('\n', at), all.size());
      lines.push_back(parse_json(all.substr(at, end - at), name));
    }
    return lines;
  }
  /// The lines of metrics.jsonl of a run.
  std::vector<Json> metrics(const std::string& run_name) const {
    return json_lines("runs/" + run_name + "/metrics.jsonl");
  }
  /// metrics.jsonl as text, without what may differ between two runs of one config.
  std::string fixed_metrics(const std::string& run_name) const {
    std::string kept;
    for (const Json& line : metrics(run_name)) {
      for (const auto& [key, value] : line.items())
        if (!key.starts_with("timing_s/") && !key.starts_with("perf/"))
          kept += key + "=" + value.dump() + " ";
      kept += "\n";
    }
    return kept;
  }

 private:
  static std::string by_mpirun(int ranks, const std::string& command) {
    const std::string root = ::getuid() == 0 ? " --allow-run-as-root" : "";
    return fmt::format("mpirun -n {} --oversubscribe --bind-to none{} {}", ranks, root, command);
  }

  std::string temper_;
  TempDir folder_;
};

}  // namespace temper
