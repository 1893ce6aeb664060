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

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_memory_tests(argc, argv); }
