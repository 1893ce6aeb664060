#include "src/run/verbs/model_commands.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "src/config/load.h"
#include "src/core/text/printable.h"
#include "src/data/prompt_builder.h"
#include "src/nn/rope_table.h"
#include "src/rollout/engine.h"
#include "src/run/plan/run_options.h"
#include "src/run/verbs/json_lines.h"
#include "src/run/verbs/shared_work.h"
#include "src/train/token_pass.h"

namespace temper {
namespace {

constexpr int64_t kScoreBudget = 4096;  // rows of one packed scoring pass, at least one sequence
constexpr int64_t kGenerateTokens =
    256;  // max_new_tokens of `generate` unless rollout.max_new_tokens is given
constexpr int64_t kCacheBytes = int64_t{2} << 30;

/// The [rollout] section from `rollout.key=value` arguments alone.
RolloutConfig rollout_settings(const CommandLine& line) {
  RolloutConfig r = load_rollout_overrides(line.overrides);
  if (r.max_new_tokens == 0) r.max_new_tokens = kGenerateTokens;
  if (r.min_new_tokens > r.max_new_tokens)
    fail(Exit::usage,
         {.what = "rollout.min_new_tokens is more than rollout.max_new_tokens",
          .where = "command line",
          .why = fmt::format("{} and {}", r.min_new_tokens, r.max_new_tokens),
          .fix = fmt::format("rollout.min_new_tokens={}, or a larger maximum", r.max_new_tokens)});
  return r;
}

/// Ids that the model does not have are a mistake, not a bias without effect.
void require_ids_of_model(const RolloutConfig& r, int64_t vocab_size) {
  std::vector<std::pair<const char*, int64_t>> ids;
  for (const int64_t id : r.stop_token_ids) ids.emplace_back("rollout.stop_token_ids", id);
  for (const auto& [id, bias] : r.logit_bias) ids.emplace_back("rollout.logit_bias", id);
  for (const auto& [key, id] : ids)
    if (id >= vocab_size)
      fail(Exit::usage, {.what = "a token id is beyond the model's vocabulary",
                         .where = fmt::format("{}, command line", key),
                         .why = fmt::format("{}; ids are 0 to {}", id, vocab_size - 1),
                         .fix = "`temper tokenize` shows the ids of a text"});
}

struct GenerateInput {
  std::vector<Request> requests;
  int64_t longest = 0;
};

GenerateInput read_prompts(const CommandLine& line, const PromptBuilder& builder) {
  std::vector<JsonLine> lines;
  if (line.has("--prompt"))
    lines.push_back({Json{{"prompt", line.text("--prompt")}}, "--prompt"});
  else
    lines = read_json_lines(line.text("--prompts"));
  GenerateInput input;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Prompt p = builder.build(lines[i].value, lines[i].where, /*with_response=*/false);
    input.longest = std::max(input.longest, static_cast<int64_t>(p.tokens.size()));
    input.requests.push_back(
        {static_cast<int64_t>(i), p.tokens, static_cast<int32_t>(line.integer("--samples", 1))});
  }
  return input;
}

/// Room for pages where rollout.kv_memory is not given: half of what the weights left free on a GPU.
int64_t cache_bytes(const Model& model) {
  return model.device() == Device::cpu ? kCacheBytes : device::gpu_memory().free / 2;
}

EngineOptions generate_engine(const Model& model, const RolloutConfig& r, int64_t longest_sequence) {
  EngineOptions o{.scheduler = {r.max_running_sequences, r.prefill_chunk_tokens},
                  .page_tokens = r.kv_page_tokens};
  const int64_t page = KvCache::page_bytes(model.config(), model.dtype(), r.kv_page_tokens);
  const int64_t one = (longest_sequence + r.kv_page_tokens - 1) / r.kv_page_tokens + 1;
  o.num_pages = std::max(
      one, std::min(one * r.max_running_sequences, r.kv_memory_bytes.value_or(cache_bytes(model)) / page));
  return o;
}

Json generated_line(size_t prompt, size_t sample, const Request& request, const Response& c) {
  return {{"prompt_index", prompt},
          {"sample_index", sample},
          {"prompt_tokens", request.prompt},
          {"tokens", c.tokens},
          {"logprobs", c.logprobs},
          {"text", c.text},
          {"finish_reason", finish_reason_name(c.finish)}};
}

/// Every token but the first is a target: a one-token prompt and the rest as response.
std::vector<Trajectory> read_sequences(const std::string& path, const Model& model) {
  std::vector<Trajectory> sequences;
  for (const JsonLine& one : read_json_lines(path)) {
    const std::vector<int32_t> tokens = token_list(one, model.config().vocab_size);
    if (static_cast<int64_t>(tokens.size()) > model.context_tokens())
      fail(Exit::data,
           {.what = "a sequence is longer than the model's context",
            .where = one.where,
            .why = fmt::format("{} tokens, the context has {}{}", tokens.size(), model.context_tokens(),
                               why_no_longer_context(model.config().rope)),
            .fix = "cut the sequence"});
    Trajectory t;
    t.prompt_tokens.assign(tokens.begin(), tokens.begin() + std::min<ptrdiff_t>(1, std::ssize(tokens)));
    t.response.tokens.assign(tokens.begin() + std::ssize(t.prompt_tokens), tokens.end());
    sequences.push_back(std::move(t));
  }
  return sequences;
}

int64_t longest_packed(const std::vector<const Trajectory*>& sequences) {
  int64_t longest = 0;
  for (const Trajectory* t : sequences) longest = std::max(longest, packed_length(*t));
  return longest;
}

}  // namespace

int run_generate(const CommandLine& line) {
  const RolloutConfig r = rollout_settings(line);
  const std::string folder = line.text("--model");
  SharedWork work(line);
  const TextTools tools = load_text_tools(folder);
  const bool has_messages = line.has("--chat");
  PromptOptions options;
  options.chat = has_messages;
  options.messages_key = has_messages ? "messages" : "";
  options.lines_have_arguments = has_messages;
  const PromptBuilder builder(*tools.tokenizer, tools.chat_template(), options);
  const GenerateInput input = read_prompts(line, builder);
  const auto model = work.host().load({folder});
  if (const std::string lost = lost_end_tokens_text(model->config(), tools.tokenizer->eos_id());
      !lost.empty())
    spdlog::warn("{}", lost);
  const int64_t longest = std::min(model->context_tokens(), input.longest + r.max_new_tokens);
  Engine engine(*model, generate_engine(*model, r, longest), work.host().ctx().lane);
  require_ids_of_model(r, model->config().vocab_size);
  const GenerateOptions sampling =
      sampling_options(r, model->config(), *tools.tokenizer, static_cast<uint64_t>(line.integer("--seed", 0)),
                       r.max_new_tokens);

  std::vector<Request> mine;
  std::vector<size_t> which;
  for (size_t i = 0; i < input.requests.size(); ++i)
    if (work.mine(i)) {
      mine.push_back(input.requests[i]);
      which.push_back(i);
    }
  const auto samples = static_cast<size_t>(line.integer("--samples", 1));
  const bool streams = line.has("--prompt") && samples == 1 && ::isatty(STDOUT_FILENO) == 1;
  Engine::OnText on_text;
  if (streams)
    on_text = [](size_t, int32_t, const std::string& text) {
      std::fputs(printable(text).c_str(), stdout);
      std::fflush(stdout);
    };
  engine.generate(
      work.host().ctx(), mine, sampling, tools.tokenizer.get(),
      [&](size_t i, std::vector<Response> done) {
        for (size_t k = 0; k < done.size() && !streams; ++k)
          work.put(which[i] * samples + k, generated_line(which[i], k, mine[i], done[k]));
      },
      on_text);
  if (streams) std::printf("\n");
  work.print();
  return 0;
}

int run_score(const CommandLine& line) {
  SharedWork work(line);
  const auto model = work.host().load({line.text("--model")});
  const std::vector<Trajectory> sequences = read_sequences(line.text("--input"), *model);
  std::vector<const Trajectory*> mine;
  std::vector<size_t> which;
  for (size_t i = 0; i < sequences.size(); ++i)
    if (work.mine(i)) {
      mine.push_back(&sequences[i]);
      which.push_back(i);
    }
  const PassOptions options{.temperature = line.number("--temperature", 1.0),
                            .token_budget = std::max(kScoreBudget, longest_packed(mine)),
                            .cost = {}};
  const std::vector<TokenValues> values = local_token_values(work.host().ctx(), *model, mine, options);
  for (size_t k = 0; k < mine.size(); ++k)
    work.put(which[k], {{"logprobs", values[k].logprob}, {"entropy", values[k].entropy}});
  work.print();
  return 0;
}

}  // namespace temper
