#include "src/run/verbs/check/run_pace.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "src/config/load.h"
#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {
namespace {

constexpr int64_t kTail = int64_t{128} << 10;  // bytes: a line of metrics has about 4 KiB
constexpr size_t kMostSteps = 20;
constexpr int64_t kMostConfig = int64_t{1} << 20;

/// The number behind `key` in a line of metrics; 0: there is none.
double number_of(std::string_view line, std::string_view key) {
  const std::string quoted = fmt::format("\"{}\":", key);
  const size_t at = line.find(quoted);
  if (at == std::string_view::npos) return 0;
  return std::strtod(std::string(line.substr(at + quoted.size(), 32)).c_str(), nullptr);
}

/// The end of a file, from the first whole line on.
std::string last_lines(const std::string& path) {
  const InputFile file(path);
  const int64_t bytes = std::min(file.size(), kTail);
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(text.data(), file.size() - bytes, bytes);
  if (bytes < file.size()) text.erase(0, text.find('\n') + 1);
  return text;
}

struct Step {
  double number = 0, seconds = 0;
};

std::vector<Step> last_steps(const std::string& text) {
  std::vector<Step> steps;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const Step step{number_of(line, "step"), number_of(line, "timing_s/step")};
    if (step.number > 0 && step.seconds > 0) steps.push_back(step);
    at = end + 1;
  }
  if (steps.size() > kMostSteps) steps.erase(steps.begin(), steps.end() - kMostSteps);
  return steps;
}

/// The model and the sizes of a step, where the newest start of the run had others.
std::string others_text(const std::string& run, const Config& now) {
  const std::string path = join_path(run, "config.toml");
  if (!path_exists(path)) return "";
  const Config then = read_dumped_config(read_file(path, kMostConfig), path);
  const auto sizes = [](const Config& c) {
    return std::tuple(c.model.path, c.algorithm.name, c.rollout.prompts_per_step,
                      c.rollout.samples_per_prompt, c.rollout.max_new_tokens);
  };
  return sizes(then) == sizes(now) ? "" : " with another model, batch or length";
}

}  // namespace

std::optional<StepTime> run_pace(const Config& config) {
  const std::string run = join_path(config.run.dir, config.run.name);
  const std::string metrics = join_path(run, "metrics.jsonl");
  std::error_code none;
  if (!std::filesystem::is_regular_file(metrics, none)) return std::nullopt;
  std::vector<Step> steps = last_steps(last_lines(metrics));
  if (steps.empty()) return std::nullopt;
  const std::string from = fmt::format("as steps {:.0f} to {:.0f} of {} took{}", steps.front().number,
                                       steps.back().number, run, others_text(run, config));
  const auto middle = steps.begin() + std::ssize(steps) / 2;
  std::nth_element(steps.begin(), middle, steps.end(),
                   [](const Step& a, const Step& b) { return a.seconds < b.seconds; });
  return StepTime{middle->seconds, from};
}

}  // namespace temper
