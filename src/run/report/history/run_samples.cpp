#include "src/run/report/history/run_samples.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/short_number.h"
#include "src/rl/trajectory_json.h"
#include "src/run/report/history/run_files.h"

namespace temper {
namespace {

constexpr size_t kSteps = 6, kPrompts = 3;
// So much of a file is read, and the line that goes beyond: a page is made at the end of a run, too.
constexpr int64_t kMaxBytes = int64_t{8} << 20;

/// Which `count` of `all` things, evenly spread: first and last are among them.
std::vector<size_t> spread(size_t all, size_t count) {
  std::vector<size_t> chosen;
  count = std::min(all, count);
  for (size_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? 0 : i * (all - 1) / (count - 1));
  return chosen;
}

/// The best and the worst response to a prompt.
struct Extremes {
  std::optional<Trajectory> best, worst;

  void add(Trajectory t) {
    if (!worst || t.reward < worst->reward) worst = t;
    if (!best || t.reward > best->reward) best = std::move(t);
  }
  /// One where all earn the same.
  void give(std::vector<Trajectory>& samples) const {
    samples.push_back(*best);
    if (worst->reward < best->reward) samples.push_back(*worst);
  }
};

/// The lines of a rollout file, by groups.
class SampleReader {
 public:
  explicit SampleReader(StepSamples& step) : step_(step) {}

  void read(const std::string& path) try {
    const LinesRead read = read_lines(path, {.all = kMaxBytes}, [&](const std::string& line, int64_t number) {
      add(line, fmt::format("line {}", number));
    });
    step_.whole = read.whole;
    for (const int64_t number : read.too_long) defect(fmt::format("line {} is too long", number));
  } catch (const Error& e) {
    defect(e.problem().what + ": " + e.problem().why);
  }

  void give() {
    step_.groups = static_cast<int64_t>(groups_.size());
    if (defects_ > 0) step_.defect = fmt::format("{} cannot be read; {}", count_text(defects_, "line"), why_);
    std::vector<const Extremes*> all;
    for (const auto& [unused, group] : groups_) all.push_back(&group);
    for (const size_t g : spread(all.size(), kPrompts)) all[g]->give(step_.samples);
  }

 private:
  void add(const std::string& line, const std::string& where) try {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return;
    Trajectory t = trajectory_from_json(parse_json(line, where), where, {});
    groups_[t.group].add(std::move(t));
  } catch (const Error& e) {
    defect(fmt::format("{}: {}: {}", e.problem().where, e.problem().what, e.problem().why));
  }
  void defect(const std::string& why) {
    if (++defects_ == 1) why_ = why;
  }

  StepSamples& step_;
  std::map<int32_t, Extremes> groups_;
  int64_t defects_ = 0;
  std::string why_;
};

StepSamples read_step(const std::string& folder, const std::string& file) {
  StepSamples step;
  step.step = std::stoll(file.substr(5, 18));
  SampleReader reader(step);
  reader.read(join_path(folder, file));
  reader.give();
  return step;
}

bool is_rollout_file(const std::string& name) {
  return name.starts_with("step-") && name.size() > 5 && name[5] >= '0' && name[5] <= '9' &&
         (name.ends_with(".jsonl") || name.ends_with(".jsonl.zst"));
}

}  // namespace

std::vector<StepSamples> read_samples(const std::string& run, std::vector<std::string>& notes) {
  std::vector<StepSamples> steps;
  const std::string folder = join_path(run, "rollouts");
  if (!may_be_read(run, "rollouts", notes) || !is_directory(folder)) return steps;
  std::vector<std::string> files;
  for (const std::string& name : list_directory(folder))
    if (is_rollout_file(name)) files.push_back(name);
  for (const size_t f : spread(files.size(), kSteps))
    if (may_be_read(run, join_path("rollouts", files[f]), notes))
      steps.push_back(read_step(folder, files[f]));
  return steps;
}

}  // namespace temper
