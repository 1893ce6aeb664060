#include "src/agents/service/held_wishes.h"

#include <algorithm>

#include "src/core/log.h"

namespace temper {
namespace {

class Wishes {
 public:
  template <class Value, class Run>
  void add(const char* name, const std::optional<Value>& asked, Run run, const char* key = nullptr) {
    if (!asked) return;
    const auto held = static_cast<Value>(run);
    all_.push_back({name, *asked == held ? ""
                                         : fmt::format("{} {}, and the run's holds: rollout.{} = {}", name,
                                                       *asked, key ? key : name, held)});
  }
  /// Its values are as many as the client likes.
  void add_bias(const SamplingWish& wish, const GenerateOptions& run) {
    if (wish.logit_bias.empty()) return;
    all_.push_back({"logit_bias", wish.logit_bias == run.logit_bias
                                      ? ""
                                      : fmt::format("a logit_bias of {} tokens, and the run's holds: "
                                                    "rollout.logit_bias, of {}",
                                                    wish.logit_bias.size(), run.logit_bias.size())});
  }
  /// Whatever its value: a turn's noise comes from what run, line, sample and prompt are.
  void add_seed(const SamplingWish& wish) {
    if (wish.seed)
      all_.push_back(
          {"seed", fmt::format("seed {}, and the run's holds: noise comes from run.seed, the line, "
                               "the sample and the turn's prompt",
                               *wish.seed)});
  }
  std::vector<HeldWish> take() { return std::move(all_); }

 private:
  std::vector<HeldWish> all_;
};

}  // namespace

std::vector<HeldWish> held_wishes(const SamplingWish& wish, const GenerateOptions& run) {
  const SampleOptions& s = run.sampling;
  Wishes wishes;
  wishes.add("temperature", wish.temperature, s.temperature);
  wishes.add("top_p", wish.top_p, s.top_p);
  std::optional<int64_t> top_k = wish.top_k;
  if (top_k) top_k = std::max<int64_t>(*top_k, 0);  // -1 is 0: off
  wishes.add("top_k", top_k, s.top_k);
  wishes.add("min_p", wish.min_p, s.min_p);
  wishes.add("repetition_penalty", wish.repetition_penalty, s.repetition_penalty);
  wishes.add("presence_penalty", wish.presence_penalty, s.presence_penalty);
  wishes.add("frequency_penalty", wish.frequency_penalty, s.frequency_penalty);
  wishes.add_bias(wish, run);
  wishes.add("min_tokens", wish.min_new_tokens, run.min_new_tokens, "min_new_tokens");
  wishes.add_seed(wish);
  return wishes.take();
}

void count_held(const SamplingWish& wish, const GenerateOptions& run, SessionResults& results) {
  for (const HeldWish& held : held_wishes(wish, run)) {
    const std::string metric = "rollout/run_sampling_held/" + held.name;
    results.count(metric);
    if (!held.text.empty() && results.is_first(metric))
      log::warn("a program asks for {}, so that what is trained is what was sampled; {} counts such requests",
                held.text, metric);
  }
}

}  // namespace temper
