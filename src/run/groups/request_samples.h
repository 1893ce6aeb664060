#pragma once
// Samples that the policy says alone: a request of the engine for each prompt.

#include "src/rollout/engine.h"
#include "src/run/groups/sample_maker.h"

namespace temper {

class RequestSamples : public SampleMaker {
 public:
  /// All outlive it.
  RequestSamples(Engine& engine, const GenerateOptions& options, const Tokenizer& tokenizer)
      : options_(options), generation_(engine, options, &tokenizer) {}

  bool add(PromptWork& work, int64_t num_samples, bool after_stop) override;
  bool done() const override { return generation_.done(); }
  std::vector<MadeGroup> step(Ctx& c, bool cut) override;
  const RolloutCounters& counters() const override { return generation_.counters(); }

 private:
  const GenerateOptions& options_;
  Generation generation_;
  std::map<size_t, PromptWork> at_work_;  // by number of the request
};

}  // namespace temper
