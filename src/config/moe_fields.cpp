#include "src/config/section.h"

namespace temper {

void moe_fields(MoeSection& c, Section f) {
  f("router.freeze", c.freeze_router,
    {.help =
         "the routers of a mixture of experts, and the gates of shared experts that are stored with them, "
         "are not trained, as if train.freeze named them"});
  f("aux_loss", c.aux_loss,
    {.help = "losses on the logits of each layer's router, whatever the model's config.json says: sequence: "
             "uneven use of the experts by each sequence; global: by the whole update; z: large logits. The "
             "first two cost a forward pass, which counts the choices of an update ahead",
     .choices = kAuxLosses,
     .no_choice = "one of a micro-batch would depend on how sequences are packed",
     .absent = "none",
     .absent_means = "no loss but that of the algorithm"});
  f("aux_coef", c.aux_coef,
    {.help = "weight of \"sequence\" and of \"global\" of moe.aux_loss, each of which is 1 where the use is "
             "even; added up over the layers",
     .range = kNotNegative});
  f("z_coef", c.z_coef,
    {.help = "weight of \"z\" of moe.aux_loss: the mean of logsumexp(logits)^2, added up over the layers",
     .range = kNotNegative});
  f("record_routes", c.record_routes,
    {.help =
         "rollouts keep which experts took each token, in a byte (or two, beyond 256 experts) for each layer "
         "and choice; updates count those that the trainer's routers did not choose. Not with "
         "rollout.harness: rows that a turn finds in the cache have no routes"});
  f("replay", c.replay,
    {.help = "rollout: routes are recorded, and in training the tokens go to these experts, weighed by the "
             "routers of now; none: the routers choose",
     .choices = kRouteReplays});
}

}  // namespace temper
