#include "src/run/exchange/step_input.h"

#include <algorithm>
#include <tuple>

#include "src/core/check.h"
#include "src/rl/trajectory_bytes.h"

namespace temper {

void add(StepNote& all, const StepNote& note) {
  for (const auto& [name, value] : note.sums) all.sums[name] += value;
  for (const auto& [name, value] : note.maxima) all.maxima[name] = std::max(all.maxima[name], value);
  for (const auto& [name, value] : note.most) all.most[name] = std::max(all.most[name], value);
  all.replaced.insert(note.replaced.begin(), note.replaced.end());
  all.num_groups += note.num_groups;
  all.data_position = std::max(all.data_position, note.data_position);
  all.stop_requested = all.stop_requested || note.stop_requested;
  all.cut = all.cut || note.cut;
  all.round = std::max(all.round, note.round);
  all.owed += note.owed;
}

void add_earlier(StepNote& all, StepNote earlier) {
  for (auto& [name, value] : earlier.most) value += all.most[name];
  add(all, earlier);
}

Json note_to_json(const StepNote& note) {
  Json replaced = Json::array();
  for (const auto& [position, reward] : note.replaced) replaced.push_back({position, reward});
  return {{"sums", note.sums},
          {"maxima", note.maxima},
          {"most", note.most},
          {"replaced", replaced},
          {"num_groups", note.num_groups},
          {"data_position", note.data_position},
          {"stop_requested", note.stop_requested},
          {"round", note.round},
          {"owed", note.owed}};
}

StepNote note_from_json(const Json& json) {
  StepNote note{.sums = json.at("sums").get<std::map<std::string, double>>(),
                .maxima = json.at("maxima").get<std::map<std::string, double>>(),
                .most = json.value("most", std::map<std::string, double>()),
                .replaced = {},
                .num_groups = json.at("num_groups").get<int64_t>(),
                .data_position = json.at("data_position").get<int64_t>(),
                .stop_requested = json.at("stop_requested").get<bool>(),
                .round = json.value("round", int64_t{0}),
                .owed = json.value("owed", int64_t{0})};
  for (const Json& prompt : json.at("replaced"))
    note.replaced[prompt.at(0).get<int64_t>()] = prompt.at(1).get<double>();
  return note;
}

void put_together(StepInput& input, Said said, int64_t step) {
  std::sort(said.annotations.begin(), said.annotations.end(), [](const Annotation& a, const Annotation& b) {
    return std::tie(a.data_position, a.sample, a.field) < std::tie(b.data_position, b.sample, b.field);
  });
  for (const Annotation& a : said.annotations) {
    const auto group =
        std::lower_bound(input.groups.begin(), input.groups.end(), a.data_position,
                         [](const Group& some, int64_t position) { return position_of(some) < position; });
    CHECK(group != input.groups.end() && position_of(*group) == a.data_position,
          "prompt {} is annotated and did not come in step {}", a.data_position, step);
    apply(a, group->samples.at(static_cast<size_t>(a.sample)));
  }
  const auto earlier = said.notes.extract(kEarlier);
  for (const auto& [from, note] : said.notes) add(input.note, note);
  if (!earlier.empty()) add_earlier(input.note, earlier.mapped());
  CHECK(std::ssize(input.groups) == input.note.num_groups && said.annotations.size() == said.num_annotations,
        "step {} has {} groups and {} annotations, {} and {} were sent", step, input.groups.size(),
        said.annotations.size(), input.note.num_groups, said.num_annotations);
}

std::string step_input_to_bytes(const StepInput& input) {
  return dump_json_line(note_to_json(input.note)) + "\n" + groups_to_bytes(input.groups);
}

StepInput step_input_from_bytes(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  CHECK(end != std::string_view::npos, "a step without its note");
  return {groups_from_bytes(bytes.substr(end + 1)),
          note_from_json(parse_json(std::string(bytes.substr(0, end)), "note of a step"))};
}

int64_t position_of(const Group& group) {
  CHECK(!group.samples.empty(), "a group without samples");
  return group.samples.front().data_position;
}

}  // namespace temper
