#include "src/run/verbs/model_commands.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "src/config/load.h"
#include "src/core/process/results.h"
#include "src/core/text/printable.h"
#include "src/data/prompt_builder.h"
#include "src/nn/rope_table.h"
#include "src/rollout/engine.h"
#include "src/rollout/media_tokens.h"
#include "src/run/plan/run_options.h"
#include "src/run/record/origins/output_settings.h"
#include "src/run/verbs/chat/conversation.h"
#include "src/run/verbs/json_lines.h"
#include "src/run/verbs/shared_work.h"
#include "src/run/verbs/verb_engine.h"
#include "src/train/token_pass.h"

namespace temper {
namespace {

constexpr int64_t kScoreBudget = 4096;  // rows of one packed scoring pass, at least one sequence
constexpr int64_t kGenerateTokens =
    256;  // max_new_tokens of `generate` unless rollout.max_new_tokens is given
constexpr int64_t kAnswerTokens = 4096;  // the same in a conversation, where Ctrl-C ends an answer
constexpr int64_t kMostIds = int64_t{1} << 31;

/// --chat alone: messages come from the terminal.
bool is_conversation(const CommandLine& line) {
  return line.has("--chat") && !line.has("--prompt") && !line.has("--prompts");
}

void require_terminal(const CommandLine& line) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1, plain = !line.has("--out") && !line.has("--samples");
  if (terminal && plain) return;
  fail(Exit::usage, {.what = "this is no conversation",
                     .where = "--chat without --prompt or --prompts",
                     .why = terminal ? "it has no file of results and one answer to each message"
                                     : "messages are typed on a terminal, which stdin is not",
                     .fix = terminal ? "leave --out and --samples out, or give --prompts FILE"
                                     : "give --prompts FILE (-: stdin) or --prompt TEXT"});
}

/// The [rollout] section from `rollout.key=value` arguments alone.
RolloutConfig rollout_settings(const CommandLine& line) {
  RolloutConfig r = load_rollout_overrides(line.overrides);
  if (r.max_new_tokens == 0) r.max_new_tokens = is_conversation(line) ? kAnswerTokens : kGenerateTokens;
  if (is_conversation(line)) r.max_running_sequences = 1;
  if (r.min_new_tokens > r.max_new_tokens)
    fail(Exit::usage,
         {.what = "rollout.min_new_tokens is more than rollout.max_new_tokens",
          .where = "command line",
          .why = fmt::format("{} and {}", r.min_new_tokens, r.max_new_tokens),
          .fix = fmt::format("rollout.min_new_tokens={}, or a larger maximum", r.max_new_tokens)});
  return r;
}

struct GenerateInput {
  TextTools tools;  // no tokenizer: the folder has none, and no prompt wants one
  std::vector<Request> requests;
  int64_t longest = 0;
};

std::vector<JsonLine> prompt_lines(const CommandLine& line, const SharedWork& work, const std::string& key) {
  if (is_conversation(line)) return {};
  if (line.has("--prompt")) return {{Json{{key, line.text("--prompt")}}, "--prompt"}};
  return work.lines(line.text("--prompts"));
}

GenerateInput read_prompts(const CommandLine& line, const SharedWork& work, const ModelSource& source,
                           bool has_stop_texts) {
  PromptOptions options;
  options.prompt_key = line.text("--prompt-key", options.prompt_key);
  options.chat = line.has("--chat");
  options.messages_key = options.chat ? "messages" : "";
  options.lines_have_arguments = options.chat;
  const std::vector<JsonLine> lines = prompt_lines(line, work, options.prompt_key);
  const auto has_ids = [&](const JsonLine& one) {
    return one.value.contains("tokens") && !one.value.contains(options.prompt_key);
  };
  GenerateInput input;
  if (has_stop_texts || is_conversation(line) || has_tokenizer(tokenizer_folder(source)) ||
      !std::all_of(lines.begin(), lines.end(), has_ids))
    input.tools = load_text_tools(source);
  std::optional<PromptBuilder> builder;
  if (input.tools.tokenizer) builder.emplace(*input.tools.tokenizer, input.tools.chat_template(), options);
  const auto samples = static_cast<int32_t>(line.integer("--samples", 1));
  for (const JsonLine& one : lines) {
    std::vector<int32_t> tokens = builder
                                      ? builder->build(one.value, one.where, /*with_response=*/false).tokens
                                      : token_list(one, kMostIds);  // the engine knows its model's
    input.longest = std::max(input.longest, static_cast<int64_t>(tokens.size()));
    input.requests.push_back({std::ssize(input.requests), std::move(tokens), samples});
  }
  return input;
}

/// What the lines of --out depend on, besides the prompts that stand in them.
Json settings_of(const CommandLine& line, const RolloutConfig& r, ModelHost& host, const std::string& folder,
                 const TextTools& tools) {
  Json settings{{"verb", "generate"},
                {"seed", line.integer("--seed", 0)},
                {"device", device_name(host.ctx().device)},
                {"dtype", dtype_name(host.dtype())},
                {"model", host.model_digests(folder)},
                {"tokenizer", settings_of_files(tools.files())}};
  settings.update(sampling_settings(r));
  return settings;
}

/// What goes to stdout or --out, and what of it a file may have.
OrderedLines::Options generated_results(const CommandLine& line, const std::vector<Request>& requests,
                                        const Json& settings) {
  return {
      .file = line.text("--out"),
      .items = requests.size(),
      .lines_of = [samples = line.integer("--samples", 1)](size_t) { return static_cast<size_t>(samples); },
      .counted = line.has("--prompts") ? "prompts" : "",
      .belongs =
          [&requests](const Json& result, size_t prompt, size_t sample) {
            return result.value("prompt_index", Json()) == prompt &&
                   result.value("sample_index", Json()) == sample &&
                   result.value("prompt_tokens", Json()) == requests[prompt].prompt;
          },
      .settings = settings};
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
std::vector<Trajectory> read_sequences(const std::vector<JsonLine>& lines, const Model& model) {
  std::vector<Trajectory> sequences;
  for (const JsonLine& one : lines) {
    const std::vector<int32_t> tokens = token_list(one, model.config().vocab_size);
    if (static_cast<int64_t>(tokens.size()) > model.context_tokens())
      fail(Exit::data,
           {.what = "a sequence is longer than the model's context",
            .where = one.where,
            .why = fmt::format("{} tokens, the context has {}{}", tokens.size(), model.context_tokens(),
                               why_no_longer_context(model.config().rope)),
            .fix = "cut the sequence"});
    require_text(tokens, model.config().media_token_ids, "a sequence", one.where);
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
  if (is_conversation(line)) require_terminal(line);
  SharedWork work(line);
  const ModelSource source = work.source(line);
  const GenerateInput input = read_prompts(line, work, source, !r.stop.empty());
  const auto model = work.host().load(source);
  const Tokenizer* tokenizer = input.tools.tokenizer.get();
  warn_of_lost_ends(*model, tokenizer);
  const int64_t longest = is_conversation(line)
                              ? longest_dialogue(*model, r)
                              : std::min(model->context_tokens(), input.longest + r.max_new_tokens);
  Engine engine(*model, engine_of_verb(*model, r, longest), work.host().ctx().lane);
  require_ids_of_model(r, model->config().vocab_size);
  const GenerateOptions sampling = sampling_options(
      r, model->config(), tokenizer, static_cast<uint64_t>(line.integer("--seed", 0)), r.max_new_tokens);
  if (is_conversation(line)) {
    converse({work.host().ctx(), engine, *tokenizer, input.tools.chat_template(), sampling});
    return 0;
  }

  SharedResults& results = work.begin(
      generated_results(line, input.requests, settings_of(line, r, work.host(), source.folder, input.tools)));
  std::vector<Request> mine;
  std::vector<size_t> which;
  for (size_t i = 0; i < input.requests.size(); ++i)
    if (results.mine(i)) {
      mine.push_back(input.requests[i]);
      which.push_back(i);
    }
  const bool streams = line.has("--prompt") && !line.has("--out") && line.integer("--samples", 1) == 1 &&
                       ::isatty(STDOUT_FILENO) == 1;
  Engine::OnGrown on_grown;
  if (streams) on_grown = [](const Engine::Grown& grown) { write_results(printable(grown.text)); };
  engine.generate(
      work.host().ctx(), mine, sampling, tokenizer,
      [&](size_t i, std::vector<Response> done) {
        std::string text = streams ? "\n" : "";
        for (size_t k = 0; k < done.size() && !streams; ++k)
          text += dump_json_line(generated_line(which[i], k, mine[i], done[k])) + "\n";
        results.put(which[i], std::move(text));
      },
      on_grown);
  results.finish();
  return 0;
}

int run_score(const CommandLine& line) {
  SharedWork work(line);
  const auto model = work.host().load(work.source(line));
  const std::vector<Trajectory> sequences = read_sequences(work.lines(line.text("--input")), *model);
  SharedResults& results = work.begin({.items = sequences.size()});
  std::vector<const Trajectory*> mine;
  std::vector<size_t> which;
  for (size_t i = 0; i < sequences.size(); ++i)
    if (results.mine(i)) {
      mine.push_back(&sequences[i]);
      which.push_back(i);
    }
  const PassOptions options{.temperature = line.number("--temperature", 1.0),
                            .token_budget = std::max(kScoreBudget, longest_packed(mine)),
                            .cost = {}};
  const std::vector<TokenValues> values = local_token_values(work.host().ctx(), *model, mine, options);
  for (size_t k = 0; k < mine.size(); ++k)
    results.put(which[k],
                dump_json_line(Json{{"logprobs", values[k].logprob}, {"entropy", values[k].entropy}}) + "\n");
  results.finish();
  return 0;
}

}  // namespace temper
