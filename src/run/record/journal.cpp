#include "src/run/record/journal.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>

#include "src/rl/trajectory_json.h"

namespace temper {

void Journal::open(const RunFolder& folder) {
  folder_ = &folder;
  terminal_ = ::isatty(STDERR_FILENO) == 1;
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

void Journal::write_groups(const std::string& subfolder, std::span<const Group> groups, int64_t step) {
  if (!folder_) return;
  folder_->require_intact();
  make_directories(folder_->path(subfolder));
  std::string text;
  for (const Group& group : groups)
    for (const Trajectory& t : group.samples) text += dump_json_line(trajectory_to_json(t, step)) + "\n";
  write_file_atomic(folder_->path(subfolder + "/" + step_name(step) + ".jsonl"), text);
}

std::string Journal::finish_step(int64_t step) {
  if (folder_) folder_->require_intact();
  Json line;
  line["step"] = step;
  for (const auto& [name, value] : values_) line[name] = value;
  if (metrics_ && !path_exists(folder_->path("metrics.jsonl"))) {
    spdlog::warn("metrics.jsonl was removed from {}: it goes on with step {}", folder_->path(""), step);
    metrics_ = std::make_unique<OutputFile>(folder_->path("metrics.jsonl"), OutputFile::Mode::append);
  }
  if (metrics_) metrics_->write(dump_json_line(line) + "\n");
  if (events_) events_->write(step, values_);
  std::string text = fmt::format("step {}/{}", step, total_steps_);
  const auto show = [&](const char* name, const char* label, int digits) {
    if (const auto at = values_.find(name); at != values_.end())
      text += fmt::format("  {} {:.{}f}", label, at->second, digits);
  };
  show("critic/score/mean", "score", 3);
  show("actor/loss", "loss", 4);
  show("train/loss", "loss", 4);
  show("actor/grad_norm", "grad_norm", 3);
  show("train/grad_norm", "grad_norm", 3);
  show("actor/entropy", "entropy", 3);
  show("response_length/mean", "length", 1);
  for (const auto& [name, value] : values_)
    if (name.starts_with("val/") && name.ends_with("/score/mean"))
      text += fmt::format("  {} {:.3f}", name, value);
  show("timing_s/step", "s", 2);
  values_.clear();
  said_ = step;
  if (status_shown_) std::fputs("\r\033[K", stderr);
  status_shown_ = false;
  return text;
}

void Journal::sync() {
  if (metrics_) metrics_->sync();
  if (events_) events_->sync();
}

void Journal::status(const std::string& text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  status_shown_ = true;
}

}  // namespace temper
