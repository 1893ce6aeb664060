// A run takes memory of the GPU in its first two steps and never again: what the driver has free between the
// same two phases is the same, to the byte, in every later step. Nothing else may use the GPU.

#include "tests/run/roles/toy_run.h"

namespace temper {
namespace {

constexpr int64_t kLastSteps = 50;

using FreeBytes = std::map<int64_t, std::vector<int64_t>>;  // by step

/// Looks after the phases before it: between rollout and training, and after it.
class Probe : public Role {
 public:
  Probe(const RoleParts& p, bool annotates, FreeBytes& seen) : p_(p), annotates_(annotates), seen_(seen) {}
  bool phase(int64_t step) override {
    if (annotates_) {
      while (p_.groups.take(p_.stage, step)) {
      }
      p_.groups.close(p_.stage, step, {});
    }
    p_.ctx.lane.wait();
    seen_[step].push_back(device::gpu_memory().free);
    return true;
  }

 private:
  const RoleParts p_;
  bool annotates_;
  FreeBytes& seen_;
};

FreeBytes& seen() {
  static FreeBytes bytes;
  return bytes;
}
std::unique_ptr<Role> make_probe_between(const RoleParts& p) {
  return std::make_unique<Probe>(p, true, seen());
}
std::unique_ptr<Role> make_probe_after(const RoleParts& p) {
  return std::make_unique<Probe>(p, false, seen());
}

class ConstantMemory : public ToyRun {
 protected:
  ConstantMemory() {
    std::string data;  // prompts alike: the same batches in every step
    for (int i = 0; i < 7; ++i) data += "{\"prompt\":\"What is 2 plus 3?\",\"answer\":\"5\"}\n";
    write_file_atomic(folder_ + "/data.jsonl", data);
    rows_.back() = {"probe between", Duty::annotates, toy_ranks, make_probe_between};
    rows_.push_back({"probe after", Duty::observes, toy_ranks, make_probe_after});
  }
};

TEST_F(ConstantMemory, OfTheGpuOverFiftySteps) {
  for (const char* recompute : {"none", "full"}) {
    seen().clear();
    ASSERT_EQ(train(std::string("constant_") + recompute, false,
                    {"run.device=cuda", fmt::format("run.steps={}", kLastSteps), "rollout.ignore_eos=true",
                     "rollout.tokens_per_step=0", "rollout.kv_memory=20000000",
                     "train.max_tokens_per_microbatch=64", "rollout.max_prompt_tokens=40",
                     "checkpoint.every=1", std::string("train.recompute.granularity=") + recompute}),
              static_cast<int>(Exit::ok));
    ASSERT_EQ(std::ssize(seen()), kLastSteps);
    for (const auto& [step, free] : seen()) {
      ASSERT_EQ(free.size(), 2u);
      if (step <= 2) continue;
      EXPECT_EQ(free, seen().at(3)) << recompute << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }
