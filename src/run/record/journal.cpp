#include "src/run/record/journal.h"

#include "src/core/log.h"
#include "src/core/text/block_reader.h"
#include "src/rl/rollout_metrics.h"
#include "src/rl/trajectory_json.h"
#include "src/run/record/sample_lines.h"
#include "src/run/record/step_line.h"

namespace temper {
namespace {

std::string lines_of(std::span<const Group> groups, int64_t step) {
  std::string text;
  for (const Group& group : groups)
    for (const Trajectory& t : group.samples) text += dump_json_line(trajectory_to_json(t, step)) + "\n";
  return text;
}

}  // namespace

void Journal::open(const RunFolder& folder, PromptFrame frame) {
  folder_ = &folder;
  frame_ = std::move(frame);
  part_names_ = PartNames(folder.path("metrics.jsonl"));
  age_ = {};
  metrics_ = std::make_unique<OutputFile>(folder.path("metrics.jsonl"), OutputFile::Mode::append);
  events_ = std::make_unique<EventFile>(folder.path("tensorboard"));
}

void Journal::add(const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) values_[name] = value;
}

double Journal::value(const std::string& name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? 0.0 : at->second;
}

std::vector<std::string> Journal::names(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_)
    if (name.starts_with(prefix)) names.push_back(name);
  return names;
}

void Journal::record_rollouts(std::span<const Group> groups, int64_t step, const Config& config) {
  add(rollout_metrics(groups));
  if (groups.empty()) set("rollout/no_signal_share", 1);
  if (!folder_) return;
  const RolloutConfig& r = config.rollout;
  if (r.dump_every > 0 && step % r.dump_every == 0) {
    const bool packed = r.dump_compress == "zstd";
    const std::string file = "rollouts/" + step_name(step) + (packed ? ".jsonl.zst" : ".jsonl");
    folder_->require_intact();
    make_directories(folder_->path("rollouts"));
    write_file_atomic(folder_->path(file),
                      packed ? zstd_packed(lines_of(groups, step)) : lines_of(groups, step));
  }
  for (const std::string& line : sample_lines(groups, frame_, step, config.log.samples_per_step))
    log::info("{}", line);
}

void Journal::write_lines(const std::string& subfolder, const std::string& lines, int64_t step) {
  if (!folder_) return;
  folder_->require_intact();
  make_directories(folder_->path(subfolder));
  write_file_atomic(folder_->path(subfolder + "/" + step_name(step) + ".jsonl"), lines);
}

void Journal::write_groups(const std::string& subfolder, std::span<const Group> groups, int64_t step) {
  if (folder_) write_lines(subfolder, lines_of(groups, step), step);
}

std::string Journal::finish_step(int64_t step) {
  if (folder_) folder_->require_intact();
  if (const std::string text = part_names_.limit(values_); folder_ && !text.empty()) log::warn("{}", text);
  if (tracker_) add(tracker_->take_counts());
  Json line;
  line["step"] = step;
  for (const auto& [name, value] : values_) line[name] = value;
  if (metrics_ && !path_exists(folder_->path("metrics.jsonl"))) {
    log::warn("metrics.jsonl was removed from {}: it goes on with step {}", folder_->path(""), step);
    metrics_ = std::make_unique<OutputFile>(folder_->path("metrics.jsonl"), OutputFile::Mode::append);
  }
  if (metrics_) metrics_->write(dump_json_line(line) + "\n");
  if (events_) events_->write(step, values_);
  if (tracker_) tracker_->note_step(step);
  for (const std::string& text :
       {no_signal_.look(step, values_), no_reward_.look(step, values_), no_request_.look(step, values_)})
    if (folder_ && !text.empty()) log::warn("{}", text);
  ++steps_;
  const double left = age_.seconds() / static_cast<double>(steps_) * static_cast<double>(total_steps_ - step);
  std::string text = step_line(step, total_steps_, values_, left);
  values_.clear();
  said_ = step;
  return text;
}

void Journal::sync() {
  if (metrics_) metrics_->sync();
  if (events_) events_->sync();
}

}  // namespace temper
