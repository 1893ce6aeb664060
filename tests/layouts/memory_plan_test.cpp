// Memory of runs as `check` plans it, in the layouts for which `make test` has no time.

#include "tests/support/memory_plan.h"

namespace temper {
namespace {

const MemoryCase kCases[] = {
    {"lag", 1, "run.max_policy_lag=1"},
    {"dp2", 2, ""},
    {"pp2", 2, "roles.trainer.pp=2 roles.rollout.pp=1"},
    {"stages", 2, "roles.trainer.pp=2"},
    {"lora_tp2", 2, "lora.rank=16 roles.trainer.tp=2 algorithm.kl_coef=0.1"},
    {"lora_apart", 2, "lora.rank=16 roles.trainer.ranks='\"0\"' roles.rollout.ranks='\"1\"'"},
};

TEST_F(MemoryPlan, IsWhatARunTakes) {
  for (const MemoryCase& c : kCases) compare(c);
}

/// Writes the folder one_expert: experts, whose routers make equal logits, so that every token takes the
/// first ones, which one rank has.
void write_one_sided(const Program& program) {
  std::filesystem::copy(program.path("experts"), program.path("one_expert"));
  std::string bytes = program.read("one_expert/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Json tensors = parse_json(bytes.substr(sizeof header, header), "model.safetensors");
  int routers = 0;
  for (const auto& [name, tensor] : tensors.items()) {
    if (!name.ends_with(".mlp.gate.weight")) continue;
    const auto begin = tensor["data_offsets"][0].get<size_t>(), end = tensor["data_offsets"][1].get<size_t>();
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(sizeof header + header + begin), end - begin,
                '\0');
    ++routers;
  }
  ASSERT_EQ(routers, 4);
  program.write("one_expert/model.safetensors", bytes);
}

/// What a rank gets from others goes in windows: a rank that has all rows of all experts takes what it takes
/// where they are spread, in every phase.
TEST_F(MemoryPlan, HoldsWhereAllTokensTakeTheExpertsOfOneRank) {
  write_one_sided(program_);
  const std::string keys = "run.steps=1 roles.trainer.ep=2 moe.router.freeze=true ";
  Json taken[2];
  for (const bool one_sided : {false, true}) {
    const std::string name = one_sided ? "one_expert" : "experts";
    ASSERT_EQ(
        program_.run_ranks(2, fmt::format("train run.toml {} run.name={} model.path={}", keys, name, name)),
        0)
        << output();
    taken[one_sided] = program_.metrics(name).back();
  }
  EXPECT_EQ(taken[1].at("moe/load_max"), 4.0);
  int phases = 0;
  for (const auto& [key, held] : taken[1].items()) {
    if (!key.starts_with("perf/peak_gb/")) continue;
    ++phases;
    constexpr double kSlack = 1.0 / 1024;  // a MiB
    EXPECT_LE(held.get<double>(), taken[0].at(key).get<double>() + kSlack) << key;
  }
  EXPECT_GE(phases, 3);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_memory_tests(argc, argv); }
