#include "src/run/roles/round_result.h"

#include "src/core/json.h"
#include "src/rl/trajectory_bytes.h"

namespace temper {

void add_work(StepNote& note, const RolloutCounters& c, double generating, double rewarding) {
  const auto rows = static_cast<double>(c.rows_prefilled + c.rows_generated + c.rows_recomputed);
  add(note, {.sums = {{"rollout/preemptions", static_cast<double>(c.preemptions)},
                      {"rollout/rows_prefilled", static_cast<double>(c.rows_prefilled)},
                      {"rollout/rows_shared", static_cast<double>(c.rows_shared)},
                      {"rollout/rows_generated", static_cast<double>(c.rows_generated)},
                      {"rollout/rows_recomputed", static_cast<double>(c.rows_recomputed)},
                      {"perf/rollout_rows", rows},
                      {"timing_s/gen_all_ranks", generating}}});
  note.most["timing_s/gen"] += generating;
  note.most["timing_s/reward"] += rewarding;
  note.most["perf/rollout_rows_max"] += rows;
}

std::string round_to_bytes(const RoundResult& round) {
  const std::vector homes(round.left.homes.begin(), round.left.homes.end());
  return dump_json_line({{"replaced", round.replaced}, {"cut", round.cut}, {"homes", Json(homes)}}) + "\n" +
         groups_to_bytes(round.left.groups);
}

void add_round(std::string_view bytes, RoundResult& all) {
  const size_t end = bytes.find('\n');
  const Json head = parse_json(std::string(bytes.substr(0, end)), "message between rollout ranks");
  all.replaced += head.at("replaced").get<int64_t>();
  all.cut = all.cut || head.at("cut").get<bool>();
  for (const auto& [position, team] : head.at("homes").get<std::vector<std::pair<int64_t, int64_t>>>())
    all.left.homes[position] = team;
  for (Group& g : groups_from_bytes(bytes.substr(end + 1))) all.left.groups.push_back(std::move(g));
}

}  // namespace temper
