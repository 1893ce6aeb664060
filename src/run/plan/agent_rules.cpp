#include "src/config/section.h"
#include "src/config/values.h"
#include "src/run/plan/rules.h"

namespace temper {
namespace {

void warn_without_program(RolloutConfig written, Findings& found) {
  RolloutConfig unset;
  std::vector<Field> fields, defaults;
  agent_fields(written, Section("", fields));
  agent_fields(unset, Section("", defaults));
  for (size_t i = 0; i < fields.size(); ++i)
    if (field_json(fields[i]) != field_json(defaults[i]))
      found.warn(
          fmt::format("rollout{} has no effect: no program plays sessions (rollout.harness)", fields[i].key));
}

/// A limit that no turn could keep is a slip.
void check_limits(const RolloutConfig& r, Findings& found) {
  const SessionLimitsConfig& s = r.sessions;
  const int64_t turn = s.max_turn_tokens > 0 ? s.max_turn_tokens : r.max_new_tokens;
  if (s.max_session_tokens > 0 && s.max_session_tokens < turn)
    found.error("rollout.max_session_tokens",
                fmt::format("{} is less than a turn may have: {} tokens ({})", s.max_session_tokens, turn,
                            s.max_turn_tokens > 0 ? "rollout.max_turn_tokens" : "rollout.max_new_tokens"),
                {0, turn});
  if (s.max_turn_tokens > r.max_new_tokens)
    found.error("rollout.max_turn_tokens",
                fmt::format("{} is more than rollout.max_new_tokens = {}, which no response exceeds",
                            s.max_turn_tokens, r.max_new_tokens),
                {0, r.max_new_tokens});
  if (s.max_turn_tokens > 0 && s.max_turn_tokens < r.min_new_tokens)
    found.error(
        "rollout.max_turn_tokens",
        fmt::format("{} is less than rollout.min_new_tokens = {}", s.max_turn_tokens, r.min_new_tokens),
        {0, r.min_new_tokens});
}

void check_port(int64_t port, const RolePlan* generator, Findings& found) {
  constexpr int64_t kLastPort = 65535;
  const int64_t teams = generator ? generator->dp() : 1;
  if (port > 0 && port + teams - 1 > kLastPort)
    found.error("rollout.server.port",
                fmt::format("{} teams generate, and {} is the port of the first: the last one would have {}",
                            teams, port, port + teams - 1),
                {0, kLastPort - teams + 1});
}

}  // namespace

void check_agents(const Config& config, const RunPlan& plan, Findings& found) {
  if (config.rollout.harness.empty()) return warn_without_program(config.rollout, found);
  if (!plan.generates)
    return found.error(
        "rollout.harness",
        fmt::format("{} generates nothing that a program could ask for", config.algorithm.name),
        {Json::array()});
  check_limits(config.rollout, found);
  check_port(config.rollout.server.port, plan.generator(), found);
  if (!config.data.chat)
    found.error("data.chat", "programs speak in messages, which the chat template renders", {true});
  const bool records = config.moe.record_routes;
  if (records || config.moe.replay != "none")
    found.error(records ? "moe.record_routes" : "moe.replay",
                "rows that a turn finds in the cache have no recorded routes",
                {records ? Json(false) : Json("none")});
}

}  // namespace temper
