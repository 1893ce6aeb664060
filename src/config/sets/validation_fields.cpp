#include "src/config/section.h"
#include "src/core/rng.h"

namespace temper {
namespace {

constexpr Words kSame = "as in [rollout]";
constexpr Range kPenalty{-2, 2};

}  // namespace

void validation_fields(ValidationConfig& c, std::vector<Field>& fields) {
  Section f("validation", fields);
  f("data", c.data,
    {.help =
         "sets to validate on, a JSONL file each, whose metrics are val/NAME/...: paths, or tables such as "
         "{name = \"hard\", path = \"hard.jsonl\", samples_per_prompt = 8, rewards = [\"math\"], rollout = "
         "{temperature = 0.6}}, which say what is other than in reward.functions and [validation]; without "
         "a name the file's; sft: their responses have a loss, and where there are rewards others are "
         "generated"});
  f("at_start", c.at_start, {.help = "validate before the first step, too: step 0 of the metrics"});
  f("every", c.every,
    {.help = "steps between validations, of which one is made after the last step; 0: none of them",
     .unit = "steps"});
  f("samples_per_prompt", c.samples_per_prompt,
    {.help = "responses per validation prompt", .unit = "samples", .range = {1, SampleKey::kMaxSample}});
  f("max_prompts", c.max_prompts, {.help = "prompts taken from each set; 0: all", .unit = "prompts"});
  override_fields(c.rollout, Section("validation.rollout", fields));
}

void override_fields(SamplingOverrides& c, Section f) {
  f("temperature", c.temperature,
    {.help = "temperature of validation", .range = kTemperature, .absent_means = kSame, .example = 0.0});
  f("top_k", c.top_k,
    {.help = "top_k of validation", .unit = "tokens", .range = kCountOrOff, .absent_means = kSame});
  f("max_prompt_tokens", c.max_prompt_tokens,
    {.help = "longest prompt of validation", .unit = "tokens", .range = kCount, .absent_means = kSame});
  f("max_new_tokens", c.max_new_tokens,
    {.help = "longest response of validation", .unit = "tokens", .range = kCount, .absent_means = kSame});
  f("min_new_tokens", c.min_new_tokens,
    {.help = "min_new_tokens of validation", .unit = "tokens", .range = kCountOrOff, .absent_means = kSame});
  f("top_p", c.top_p,
    {.help = "top_p of validation", .range = {0, 1, true}, .absent_means = kSame, .example = 1.0});
  f("min_p", c.min_p, {.help = "min_p of validation", .range = kShare, .absent_means = kSame});
  f("repetition_penalty", c.repetition_penalty,
    {.help = "repetition_penalty of validation",
     .range = {0.01, 100},
     .absent_means = kSame,
     .example = 1.0});
  f("presence_penalty", c.presence_penalty,
    {.help = "presence_penalty of validation", .range = kPenalty, .absent_means = kSame, .example = 0.0});
  f("frequency_penalty", c.frequency_penalty,
    {.help = "frequency_penalty of validation", .range = kPenalty, .absent_means = kSame, .example = 0.0});
  f("logit_bias", c.logit_bias,
    {.help = "logit_bias of validation", .range = {-100, 100}, .absent_means = kSame});
  f("stop", c.stop, {.help = "stop texts of validation", .absent_means = kSame, .format = Format::not_empty});
  f("include_stop_text", c.include_stop_text,
    {.help = "include_stop_text of validation", .absent_means = kSame});
  f("stop_token_ids", c.stop_token_ids, {.help = "stop token ids of validation", .absent_means = kSame});
  f("ignore_eos", c.ignore_eos, {.help = "ignore_eos of validation", .absent_means = kSame});
}

}  // namespace temper
