#include "src/run/record/trace.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "src/core/file.h"
#include "src/core/hash.h"
#include "src/run/record/run_folder.h"

namespace temper {
namespace {

constexpr double kMicroseconds = 1e6;
constexpr const char* kGpu = "GPU";

/// Lanes are the threads of a rank's process in the viewer.
int lane_number(const std::string& lane) {
  const std::vector<std::string> known{"rollout", "reference", "trainer", kGpu};
  return static_cast<int>(std::find(known.begin(), known.end(), lane) - known.begin());
}

Json name_event(const char* kind, int rank, const std::string& lane, const std::string& name) {
  return {{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", lane_number(lane)}, {"args", {{"name", name}}}};
}

/// Events of any ranks and lanes, and the names of those.
void write_timeline(const std::string& path, Json events) {
  if (events.empty()) return;
  std::map<std::pair<int, std::string>, bool> lanes;
  for (const Json& event : events)
    lanes[{event.at("pid").get<int>(), event.at("cat").get<std::string>()}] = true;
  for (const auto& [lane, unused] : lanes) {
    events.push_back(name_event("process_name", lane.first, lane.second, fmt::format("rank {}", lane.first)));
    events.push_back(name_event("thread_name", lane.first, lane.second, lane.second));
  }
  make_directories(std::filesystem::path(path).parent_path().string());
  write_file_atomic(path, Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump());
}

}  // namespace

std::string weights_arrow(int64_t version, int to) {
  return fmt::format("weights {} to rank {}", version, to);
}
std::string groups_arrow(int64_t step, int from) {
  return fmt::format("groups of step {} from rank {}", step, from);
}

bool Trace::on(int64_t step) const {
  return std::binary_search(steps_.begin(), steps_.end(), static_cast<int>(step));
}

void Trace::add(int64_t step, const char* lane, Json event) {
  event["pid"] = rank_;
  event["tid"] = lane_number(lane);
  event["cat"] = lane;
  events_[step].push_back(std::move(event));
}

void Trace::span(int64_t step, const char* lane, const std::string& name, double begin) {
  if (on(step)) add_span(step, lane, name, begin, now());
}

void Trace::gpu_spans(int64_t step, const std::vector<LaneSpans::Span>& spans) {
  if (!on(step)) return;
  for (const LaneSpans::Span& s : spans) add_span(step, kGpu, s.name, s.begin, s.end);
}

void Trace::add_span(int64_t step, const char* lane, const std::string& name, double begin, double end) {
  add(step, lane,
      {{"ph", "X"},
       {"name", name},
       {"ts", std::round(begin * kMicroseconds)},
       {"dur", std::round((end - begin) * kMicroseconds)},
       {"args", {{"step", step}}}});
}

void Trace::arrow(int64_t step, const char* lane, const std::string& name, Arrow end) {
  if (!on(step)) return;
  Json event{{"ph", end == Arrow::begins ? "s" : "f"},
             {"name", name},
             {"id", digest_hex(name.data(), static_cast<int64_t>(name.size())).substr(0, 12)},
             {"ts", std::round(now() * kMicroseconds)}};
  if (end == Arrow::ends) event["bp"] = "e";
  add(step, lane, std::move(event));
}

void Trace::write(Comm& world, const std::string& folder) {
  Json together = Json::array();
  for (const int step : steps_) {
    Json mine = events_[step];
    const std::vector<std::string> all = world.all_gather(mine.dump(), "trace events, copied");
    if (folder.empty()) continue;
    Json events = Json::array();
    for (const std::string& part : all)
      for (Json& event : parse_json(part, "trace of a rank")) {
        together.push_back(event);
        events.push_back(std::move(event));
      }
    write_timeline(join_path(folder, step_name(step) + ".json"), std::move(events));
  }
  if (steps_.size() > 1 && !folder.empty())
    write_timeline(join_path(folder, "all-steps.json"), std::move(together));
}

}  // namespace temper
