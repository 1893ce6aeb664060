#include "src/config/section.h"

namespace temper {
namespace {

KeySpec lead_ranks() {
  return {.help = "ranks that train: \"all\" or a set like \"0-7,16-23\"",
          .format = Format::rank_set,
          .example = "all"};
}
KeySpec ranks_spec() {
  return {.help = "ranks of this role",
          .absent_means = "as roles.trainer.ranks",
          .format = Format::rank_set,
          .example = "all"};
}

/// A number of ranks or parts; `absent_means` empty: of the role that leads.
KeySpec number_spec(std::string_view help, std::string_view unit, std::string_view absent_means = {}) {
  KeySpec spec{.help = help, .unit = unit, .range = kCount, .absent_means = absent_means};
  if (!absent_means.empty()) spec.example = 2;
  return spec;
}

KeySpec stage_layers_spec() {
  return {.help =
              "layers of each part, as many numbers as roles.trainer.pp x vpp; []: so that the slowest is "
              "as fast as can be, with the head counted",
          .unit = "layers"};
}
KeySpec lead_zero() {
  return {.help =
              "what is sharded over the data parallel ranks: 1: the optimizer's state; 2: the sums of "
              "gradients, too, which are then exchanged after every micro-batch; 3: the weights, too, "
              "while they are trained: they are gathered layer by layer, the next one while one is "
              "worked with, and are whole again for everything else",
          .range = {1, 3},
          .example = 2};
}
KeySpec zero_spec() {
  return {.help =
              "3: a rank keeps its shard of the weights over the data parallel ranks, which gather them "
              "layer by layer; they score a whole step together then. 1, 2: whole weights",
          .range = {1, 3},
          .absent_means = "3 where roles.trainer.zero is and the role's offload is not true, else 1",
          .example = 3};
}
KeySpec offload_spec() {
  return {.help = "weights of this role in host memory but for its phase",
          .absent = "auto",
          .absent_means = "on a GPU, where the run does not fit otherwise",
          .example = true};
}

/// The section of the role whose keys have defaults.
void lead_fields(const RoleTraits& role, RoleSection& c, Section f) {
  const auto add = [&](RoleKey key, const char* name, auto& member, KeySpec spec) {
    if (role.keys.has(key)) f(name, member, std::move(spec));
  };
  add(RoleKey::ranks, "ranks", c.ranks, lead_ranks());
  add(RoleKey::tp, "tp", c.tp,
      number_spec(
          "tensor parallel: so many ranks share every layer's heads and matrices; the others are data "
          "parallel",
          "ranks"));
  add(RoleKey::cp, "cp", c.cp,
      number_spec("context parallel: so many ranks share the tokens of a micro-batch, and in attention its "
                  "heads; sequences may be longer than one rank's budget",
                  "ranks"));
  add(RoleKey::pp, "pp", c.pp,
      number_spec("pipeline parallel: so many stages, each with layers of its own, that micro-batches go "
                  "through",
                  "stages"));
  add(RoleKey::vpp, "vpp", c.vpp,
      number_spec("interleaved pipeline: each stage has so many parts of the model, and waits less for the "
                  "others where the stages divide the micro-batches",
                  "parts"));
  add(RoleKey::ep, "ep", c.ep,
      number_spec(
          "expert parallel: so many neighbouring ranks (along tp, cp, dp) have a block of the experts "
          "each, and tokens go to them; it divides the experts, and divides tp or is a multiple of it",
          "ranks", "as tp, as far as it divides the experts"));
  add(RoleKey::stage_layers, "stage_layers", c.stage_layers, stage_layers_spec());
  add(RoleKey::zero, "zero", c.zero, lead_zero());
}

/// The section of a role that takes absent keys from another one.
void follower_fields(const RoleTraits& role, RoleSection& c, Section f) {
  const auto add = [&](RoleKey key, const char* name, auto& member, KeySpec spec) {
    if (role.keys.has(key)) f(name, member, std::move(spec));
  };
  add(RoleKey::ranks, "ranks", c.ranks, ranks_spec());
  add(RoleKey::path, "path", c.path,
      {.help = "Hugging Face folder of this role's model",
       .absent_means = "model.path; without one there is no teacher",
       .format = Format::not_empty});
  add(RoleKey::tp, "tp", c.tp,
      number_spec("tensor parallel: so many ranks share the model of this role", "ranks",
                  "as roles.trainer.tp"));
  add(RoleKey::cp, "cp", c.cp,
      number_spec("context parallel: so many ranks share the tokens that this role scores", "ranks",
                  "as roles.trainer.cp"));
  add(RoleKey::pp, "pp", c.pp,
      number_spec("pipeline parallel: so many stages, each with layers of its own (balanced; those of the "
                  "trainer, if it has as many)",
                  "stages", "as roles.trainer.pp where the ranks of the role divide so, else 1"));
  add(RoleKey::vpp, "vpp", c.vpp,
      number_spec("interleaved pipeline: each stage has so many parts of the model (balanced; those of the "
                  "trainer, if it has as many)",
                  "parts", "as roles.trainer.vpp where both have as many stages, else 1"));
  add(RoleKey::ep, "ep", c.ep,
      number_spec(
          "expert parallel: so many neighbouring ranks have a block of the experts each; of a role "
          "that generates it divides tp",
          "ranks",
          "of a role that scores as the trainer's where it fits, else as tp, as far as it divides the "
          "experts"));
  add(RoleKey::zero, "zero", c.zero, zero_spec());
  add(RoleKey::offload, "offload", c.offload, offload_spec());
}

}  // namespace

void roles_fields(RolesConfig& c, std::vector<Field>& fields) {
  for (const bool leads : {true, false})
    for (const RoleTraits& role : c.rows())
      if (role.leads() == leads)
        (leads ? lead_fields : follower_fields)(role, c.of(role.name),
                                                {std::string("roles.") + role.name, fields});
}

}  // namespace temper
