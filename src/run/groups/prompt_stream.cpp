#include "src/run/groups/prompt_stream.h"

#include <algorithm>

#include "src/agents/programs/harness.h"
#include "src/core/check.h"
#include "src/core/process/progress.h"
#include "src/rollout/media_tokens.h"

namespace temper {
namespace {

std::vector<DatasetFile> dataset_files(const std::vector<DataSource>& sources) {
  std::vector<DatasetFile> files;
  for (const DataSource& s : sources) files.push_back({s.path, s.weight});
  return files;
}

/// Lines of which each turn is a sample.
Dataset::PartsOf parts_of(const DataConfig& data, const PromptStream::Limits& limits) {
  if (!limits.with_response || data.train_on != "each") return {};
  return [options = prompt_options(data)](const Json& record, const std::string& where) {
    return count_turns(record, options, where);
  };
}

int64_t whole_tokens(const Prompt& p) {
  return static_cast<int64_t>(p.tokens.size() + p.response_tokens.size());
}

}  // namespace

PromptOptions prompt_options(const DataConfig& d) {
  const TrainOn turns = d.train_on == "all"    ? TrainOn::all
                        : d.train_on == "each" ? TrainOn::each
                                               : TrainOn::last;
  return {d.prompt_key,    d.answer_key,     d.messages_key, d.response_key, d.chat,
          d.system_prompt, d.chat_arguments, false,          d.domain_key,   turns};
}

bool PromptStream::Limits::fits(const Prompt& p) const {
  return static_cast<int64_t>(p.tokens.size()) <= max_prompt_tokens &&
         !(with_response && whole_tokens(p) > max_sequence_tokens);
}

void PromptStream::Limits::require_known_ids(const Prompt& prompt, const std::string& where) const {
  int32_t largest = 0;
  for (const std::vector<int32_t>* ids : {&prompt.tokens, &prompt.response_tokens})
    for (const int32_t id : *ids) largest = std::max(largest, id);
  if (largest >= vocab_size)
    fail(Exit::data,
         {.what = "the data has a token that the model does not know",
          .where = where,
          .why = fmt::format("id {}; the ids of the model are 0 to {} (vocab_size of its config.json)",
                             largest, vocab_size - 1),
          .fix = "use the tokenizer that the model was trained with (tokenizer.path)"});
  require_text(prompt.tokens, media_token_ids, "a prompt", where);
  require_text(prompt.response_tokens, media_token_ids, "a response", where);
}

void PromptStream::Limits::require_player(const Json& record, const std::string& where) const {
  if (!harnesses.empty()) chosen_harness(harnesses, record, where);
}

PromptStream::PromptStream(const std::vector<DataSource>& files, const DataConfig& data, uint64_t seed,
                           const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                           const Limits& limits)
    : dataset_(dataset_files(files), seed, data.shuffle, parts_of(data, limits)),
      builder_(tokenizer, chat_template, prompt_options(data)),
      overlong_(data.overlong),
      limits_(limits) {}

bool PromptStream::fit(Prompt& p, const std::string& where) const {
  if (limits_.fits(p)) return true;
  if (overlong_ == "drop") return false;
  if (overlong_ == "truncate-left" && !limits_.with_response) {
    p.tokens.erase(p.tokens.begin(), p.tokens.end() - limits_.max_prompt_tokens);
    return true;
  }
  fail(Exit::data,
       {.what = "a prompt is too long",
        .where = where,
        .why = fmt::format("{} tokens ({} with the response); prompts may have {}, sequences {}",
                           p.tokens.size(), whole_tokens(p), limits_.max_prompt_tokens,
                           limits_.max_sequence_tokens),
        .fix = "raise rollout.max_prompt_tokens, or set data.overlong = \"drop\" or \"truncate-left\""});
}

std::vector<DrawnPrompt> PromptStream::next(int64_t count) {
  std::vector<DrawnPrompt> drawn;
  int64_t dropped = 0;  // one after the other: at the end of an epoch and at the start of the next
  while (static_cast<int64_t>(drawn.size()) < count) {
    const int64_t position = position_++;
    DrawnPrompt prompt = build(position);
    if (!fit(prompt.prompt, dataset_.where(position))) {
      if (++dropped > 2 * dataset_.num_lines())
        fail(Exit::data, {.what = "every prompt is too long",
                          .where = "data.train",
                          .why = fmt::format("none of {} lines fits into {} tokens", dataset_.num_lines(),
                                             limits_.max_prompt_tokens),
                          .fix = "raise rollout.max_prompt_tokens"});
      continue;
    }
    dropped = 0;
    drawn.push_back(std::move(prompt));
  }
  return drawn;
}

DrawnPrompt PromptStream::at(int64_t position) {
  DrawnPrompt prompt = build(position);
  fit(prompt.prompt, dataset_.where(position));
  return prompt;
}

DrawnPrompt PromptStream::build(int64_t position) {
  auto record = std::make_shared<const Json>(dataset_.record(position));
  Prompt prompt =
      builder_.build(*record, dataset_.where(position), limits_.with_response, dataset_.part(position));
  return {position, std::move(prompt), std::move(record)};
}

std::vector<DrawnPrompt> PromptStream::all(
    int64_t max_count, const std::function<void(const Prompt&, const std::string&)>& check_answer) {
  std::vector<DrawnPrompt> list;
  const int64_t lines = max_count > 0 ? std::min(max_count, dataset_.num_lines()) : dataset_.num_lines();
  for (int64_t i = 0; i < lines; ++i) {
    auto record = std::make_shared<const Json>(dataset_.line(i));
    Prompt prompt =
        builder_.build(*record, dataset_.where_line(i), limits_.with_response, dataset_.part_of_line(i));
    limits_.require_known_ids(prompt, dataset_.where_line(i));
    limits_.require_player(*record, dataset_.where_line(i));
    if (!fit(prompt, dataset_.where_line(i))) continue;
    if (check_answer) check_answer(prompt, builder_.where_answer(*record, dataset_.where_line(i)));
    list.push_back({i, std::move(prompt), std::move(record)});
  }
  return list;
}

int64_t PromptStream::count_fitting() const {
  int64_t fitting = 0;
  for (int64_t i = 0; i < dataset_.num_lines(); ++i) {
    const std::string where = dataset_.where_line(i);
    Prompt prompt = builder_.build(dataset_.line(i), where, limits_.with_response, dataset_.part_of_line(i));
    note_progress();
    fitting += fit(prompt, where);
  }
  return fitting;
}

void PromptStream::check_all(
    const std::function<void(const Prompt&, const std::string&)>& check_answer) const {
  int64_t fitting = 0;
  for (int64_t i = 0; i < dataset_.num_lines(); ++i) {
    const Json record = dataset_.line(i);
    const std::string where = dataset_.where_line(i);
    Prompt prompt = builder_.build(record, where, limits_.with_response, dataset_.part_of_line(i));
    note_progress();
    limits_.require_known_ids(prompt, where);
    limits_.require_player(record, where);
    fitting += fit(prompt, where);
    if (check_answer) check_answer(prompt, builder_.where_answer(record, where));
  }
  if (fitting == 0)
    fail(Exit::data, {.what = "every prompt is too long",
                      .where = "data.train",
                      .why = fmt::format("none of {} lines fits into {} tokens", dataset_.num_lines(),
                                         limits_.max_prompt_tokens),
                      .fix = "raise rollout.max_prompt_tokens"});
}

}  // namespace temper
