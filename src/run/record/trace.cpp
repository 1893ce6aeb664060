#include "src/run/record/trace.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include "src/core/digest/hash.h"
#include "src/core/file.h"
#include "src/core/process/host.h"
#include "src/run/record/run_folder.h"

namespace temper {
namespace {

constexpr std::string_view kRewards = "rewards ";

/// The clock is one that all processes of a host share.
int64_t nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
int64_t nanoseconds() { return nanoseconds(std::chrono::steady_clock::now()); }

/// Microseconds, to the nanosecond: what is rounded may lie outside of the span that it lies in.
double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

/// Lanes are the threads of a rank's process in the viewer.
int track_number(const std::string& track) {
  const std::vector<std::string> known{"rollout", "reference", "trainer", device_track(Device::cuda),
                                       device_track(Device::cpu), "teacher"};
  const auto at = static_cast<int>(std::find(known.begin(), known.end(), track) - known.begin());
  return track.starts_with(kRewards) ? at + std::atoi(track.c_str() + kRewards.size()) : at;
}

Json name_event(const char* kind, int rank, const std::string& track, const std::string& name) {
  return {
      {"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", track_number(track)}, {"args", {{"name", name}}}};
}

/// Events of any ranks and tracks, and the names of those.
void write_timeline(const std::string& path, Json events) {
  if (events.empty()) return;
  std::set<std::pair<int, std::string>> tracks;
  for (const Json& event : events)
    if (event.at("ph") == "X") tracks.emplace(event.at("pid").get<int>(), event.at("cat").get<std::string>());
  for (const auto& track : tracks) {
    events.push_back(
        name_event("process_name", track.first, track.second, fmt::format("rank {}", track.first)));
    events.push_back(name_event("thread_name", track.first, track.second, track.second));
  }
  make_directories(std::filesystem::path(path).parent_path().string());
  write_file_atomic(path, Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump());
}

}  // namespace

const char* device_track(Device device) { return device == Device::cuda ? "GPU" : "CPU"; }
std::string reward_track(int thread) { return fmt::format("{}{}", kRewards, thread + 1); }

std::string weights_arrow(int64_t version, int to) {
  return fmt::format("weights {} to rank {}", version, to);
}
std::string groups_arrow(int64_t step, int from) {
  return fmt::format("groups of step {} from rank {}", step, from);
}

bool Trace::on(int64_t step) const {
  return std::binary_search(steps_.begin(), steps_.end(), static_cast<int>(step));
}

void Trace::start(Comm& world) {
  world.barrier("time 0 of the trace");
  const Json mine{{"host", this_host()}, {"time", nanoseconds()}};
  for (const std::string& text : world.all_gather(mine.dump(), "clocks of the trace"))
    if (const Json first = Json::parse(text); first.at("host") == mine.at("host")) {
      origin_ = first.at("time");
      return;
    }
}

double Trace::now() const { return at(std::chrono::steady_clock::now()); }
double Trace::at(std::chrono::steady_clock::time_point time) const {
  return static_cast<double>(nanoseconds(time) - origin_) * 1e-9;
}

void Trace::add(int64_t step, const std::string& track, const std::string& category, Json event) {
  event["pid"] = rank_;
  event["tid"] = track_number(track);
  event["cat"] = category;
  events_[step].push_back(std::move(event));
}

void Trace::span(int64_t step, const char* track, const std::string& name, double begin) {
  if (on(step)) add_span(step, track, {name, begin, now()});
}

void Trace::spans(int64_t step, const std::string& track, const std::vector<LaneSpans::Span>& spans) {
  if (!on(step)) return;
  for (const LaneSpans::Span& span : spans) add_span(step, track, span);
}

void Trace::add_span(int64_t step, const std::string& track, const LaneSpans::Span& span) {
  const double from = microseconds(span.begin);
  add(step, track, track,
      {{"ph", "X"},
       {"name", span.name},
       {"ts", from},
       {"dur", microseconds((microseconds(span.end) - from) * 1e-6)},
       {"args", {{"step", step}}}});
}

void Trace::arrow(int64_t step, const char* track, const std::string& name, Arrow end) {
  if (!on(step)) return;
  Json event{{"ph", end == Arrow::begins ? "s" : "f"},
             {"name", name},
             {"id", digest_hex(name.data(), static_cast<int64_t>(name.size())).substr(0, 12)},
             {"ts", microseconds(now())}};
  if (end == Arrow::ends) event["bp"] = "e";
  add(step, track, "arrow", std::move(event));  // viewers join ends of one category, name and id
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
