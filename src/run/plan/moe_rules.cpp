#include "src/config/fields.h"
#include "src/config/values.h"
#include "src/models/freeze.h"
#include "src/run/plan/draft.h"
#include "src/train/routers/aux_losses.h"

namespace temper {
namespace {

/// Every key of [moe] that is not as it is without one.
void refuse_for_dense(PlanDraft& d) {
  Config written = d.config, unset;
  const std::vector<Field> fields = config_fields(written), defaults = config_fields(unset);
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!fields[i].key.starts_with("moe.")) continue;
    const Json off = field_json(defaults[i]);
    if (field_json(fields[i]) != off)
      d.error(fields[i].key, "the model has no experts: all its feed-forward layers are dense", {off});
  }
}

bool names(const MoeSection& c, std::string_view loss) {
  return std::find(c.aux_loss.begin(), c.aux_loss.end(), loss) != c.aux_loss.end();
}

void warn_of_halves(PlanDraft& d) {
  const MoeSection& c = d.config.moe;
  const bool counts = names(c, "sequence") || names(c, "global");
  const auto warn = [&](bool named, double coef, const char* key, const char* loss) {
    if (named && coef == 0)
      d.warn(fmt::format("moe.aux_loss names {}, and {} = 0: it adds nothing", loss, key));
    if (!named && coef > 0)
      d.warn(fmt::format("{} = {} has no effect: moe.aux_loss does not name {}", key, coef, loss));
  };
  warn(counts, c.aux_coef, "moe.aux_coef", "\"sequence\" or \"global\"");
  warn(names(c, "z"), c.z_coef, "moe.z_coef", "\"z\"");
}

}  // namespace

void plan_routes(PlanDraft& d) {
  const MoeSection& c = d.config.moe;
  const MoeConfig& model = d.facts.moe;
  RunPlan& plan = d.result.plan;
  plan.follows_routes = c.replay != "none";
  if ((!c.record_routes && !plan.follows_routes) || model.layers.empty()) return;
  const auto refuse = [&](const std::string& why) {
    if (c.record_routes) d.error("moe.record_routes", why, {false});
    if (plan.follows_routes) d.error("moe.replay", why, {"none"});
  };
  plan.routes = {std::ssize(model.layers), model.num_experts, model.experts_per_token};
  if (!plan.generates)
    return refuse(
        fmt::format("{} samples no responses whose routes there could be", d.config.algorithm.name));
  if (const RolePlan* with = plan.generator(); with && with->pp() > 1)
    refuse(fmt::format(
        "roles.{}.pp = {}: routes are recorded where one rank goes through all layers of a token, "
        "as with 1",
        with->name(), with->pp()));
}

void plan_moe(PlanDraft& d) {
  const MoeConfig& model = d.facts.moe;
  if (model.layers.empty()) return refuse_for_dense(d);
  const AuxLossOptions losses = AuxLossOptions::of(d.config.moe);
  d.result.plan.aux_losses =
      losses.text() +
      (model.file_aux_coef > 0
           ? fmt::format(" (router_aux_loss_coef = {} of its config.json is not used)", model.file_aux_coef)
           : "");
  const std::vector<std::string> routers = router_parameters(d.facts);
  const auto frozen = std::count_if(routers.begin(), routers.end(),
                                    [&](const std::string& name) { return d.facts.frozen.contains(name); });
  if (losses.any() && frozen == std::ssize(routers))
    d.error("moe.aux_loss",
            fmt::format("they train the routers, and all {} of them are frozen by {}", routers.size(),
                        d.config.moe.freeze_router ? "moe.router.freeze" : "train.freeze"),
            {"none"});
  warn_of_halves(d);
}

}  // namespace temper
