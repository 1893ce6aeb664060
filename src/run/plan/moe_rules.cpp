#include "src/config/fields.h"
#include "src/config/values.h"
#include "src/models/freeze.h"
#include "src/run/plan/rules.h"
#include "src/train/routers/aux_losses.h"

namespace temper {
namespace {

/// Every key of [moe] that is not as it is without one.
void refuse_for_dense(Config written, Findings& found) {
  Config unset;
  const std::vector<Field> fields = config_fields(written), defaults = config_fields(unset);
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!fields[i].key.starts_with("moe.")) continue;
    const Json off = field_json(defaults[i]);
    if (field_json(fields[i]) != off)
      found.error(fields[i].key, "the model has no experts: all its feed-forward layers are dense", {off});
  }
}

bool names(const MoeSection& c, std::string_view loss) {
  return std::find(c.aux_loss.begin(), c.aux_loss.end(), loss) != c.aux_loss.end();
}

void warn_of_halves(const MoeSection& c, Findings& found) {
  const bool counts = names(c, "sequence") || names(c, "global");
  const auto warn = [&](bool named, double coef, const char* key, const char* loss) {
    if (named && coef == 0)
      found.warn(fmt::format("moe.aux_loss names {}, and {} = 0: it adds nothing", loss, key));
    if (!named && coef > 0)
      found.warn(fmt::format("{} = {} has no effect: moe.aux_loss does not name {}", key, coef, loss));
  };
  warn(counts, c.aux_coef, "moe.aux_coef", "\"sequence\" or \"global\"");
  warn(names(c, "z"), c.z_coef, "moe.z_coef", "\"z\"");
}

}  // namespace

RouteShape plan_routes(const Config& config, const RunPlan& plan, const MoeConfig& model, Findings& found) {
  const MoeSection& c = config.moe;
  if ((!c.record_routes && !plan.follows_routes) || model.layers.empty()) return {};
  const auto refuse = [&](const std::string& why) {
    if (c.record_routes) found.error("moe.record_routes", why, {false});
    if (plan.follows_routes) found.error("moe.replay", why, {"none"});
  };
  if (!plan.generates)
    refuse(fmt::format("{} samples no responses whose routes there could be", config.algorithm.name));
  else if (const RolePlan* with = plan.generator(); with && with->pp() > 1)
    refuse(fmt::format(
        "roles.{}.pp = {}: routes are recorded where one rank goes through all layers of a token, "
        "as with 1",
        with->name(), with->pp()));
  return {std::ssize(model.layers), model.num_experts, model.experts_per_token};
}

std::string plan_aux_losses(const Config& config, const ModelConfig& model, Findings& found) {
  if (model.moe.layers.empty()) {
    refuse_for_dense(config, found);
    return "";
  }
  const AuxLossOptions losses = AuxLossOptions::of(config.moe);
  const std::vector<std::string> routers = router_parameters(model);
  const auto frozen = std::count_if(routers.begin(), routers.end(),
                                    [&](const std::string& name) { return model.frozen.contains(name); });
  if (losses.any() && frozen == std::ssize(routers))
    found.error("moe.aux_loss",
                fmt::format("they train the routers, and all {} of them are frozen by {}", routers.size(),
                            config.moe.freeze_router ? "moe.router.freeze" : "train.freeze"),
                {"none"});
  warn_of_halves(config.moe, found);
  const double unused = model.moe.file_aux_coef;
  return losses.text() +
         (unused > 0 ? fmt::format(" (router_aux_loss_coef = {} of its config.json is not used)", unused)
                     : "");
}

}  // namespace temper
