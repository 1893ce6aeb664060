#include "src/config/section.h"
#include "src/config/values.h"
#include "src/run/plan/draft.h"

namespace temper {
namespace {

void warn_without_program(PlanDraft& d) {
  RolloutConfig written = d.config.rollout, unset;
  std::vector<Field> fields, defaults;
  agent_fields(written, Section("", fields));
  agent_fields(unset, Section("", defaults));
  for (size_t i = 0; i < fields.size(); ++i)
    if (field_json(fields[i]) != field_json(defaults[i]))
      d.warn(
          fmt::format("rollout{} has no effect: no program plays sessions (rollout.harness)", fields[i].key));
}

/// A limit that no turn could keep is a slip.
void check_limits(PlanDraft& d) {
  const RolloutConfig& r = d.config.rollout;
  const SessionLimitsConfig& s = r.sessions;
  const int64_t turn = s.max_turn_tokens > 0 ? s.max_turn_tokens : r.max_new_tokens;
  if (s.max_session_tokens > 0 && s.max_session_tokens < turn)
    d.error("rollout.max_session_tokens",
            fmt::format("{} is less than a turn may have: {} tokens ({})", s.max_session_tokens, turn,
                        s.max_turn_tokens > 0 ? "rollout.max_turn_tokens" : "rollout.max_new_tokens"),
            {0, turn});
  if (s.max_turn_tokens > r.max_new_tokens)
    d.error("rollout.max_turn_tokens",
            fmt::format("{} is more than rollout.max_new_tokens = {}, which no response exceeds",
                        s.max_turn_tokens, r.max_new_tokens),
            {0, r.max_new_tokens});
  if (s.max_turn_tokens > 0 && s.max_turn_tokens < r.min_new_tokens)
    d.error("rollout.max_turn_tokens",
            fmt::format("{} is less than rollout.min_new_tokens = {}", s.max_turn_tokens, r.min_new_tokens),
            {0, r.min_new_tokens});
}

void check_port(PlanDraft& d) {
  constexpr int64_t kLastPort = 65535;
  const int64_t port = d.config.rollout.server.port;
  const RolePlan* const generator = d.result.plan.generator();
  const int64_t teams = generator ? generator->dp() : 1;
  if (port > 0 && port + teams - 1 > kLastPort)
    d.error("rollout.server.port",
            fmt::format("{} teams generate, and {} is the port of the first: the last one would have {}",
                        teams, port, port + teams - 1),
            {0, kLastPort - teams + 1});
}

}  // namespace

void plan_agents(PlanDraft& d) {
  if (d.config.rollout.harness.empty()) return warn_without_program(d);
  if (d.supervised())
    return d.error("rollout.harness",
                   fmt::format("{} generates nothing that a program could ask for", d.config.algorithm.name),
                   {Json::array()});
  check_limits(d);
  check_port(d);
  if (!d.config.data.chat)
    d.error("data.chat", "programs speak in messages, which the chat template renders", {true});
  const bool records = d.config.moe.record_routes;
  if (records || d.config.moe.replay != "none")
    d.error(records ? "moe.record_routes" : "moe.replay",
            "rows that a turn finds in the cache have no recorded routes",
            {records ? Json(false) : Json("none")});
}

}  // namespace temper
