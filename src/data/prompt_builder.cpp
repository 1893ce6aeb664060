#include "src/data/prompt_builder.h"

#include <algorithm>
#include <set>

#include "src/core/big_integer.h"
#include "src/core/check.h"
#include "src/core/text/answer_text.h"
#include "src/core/text/short_number.h"

namespace temper {
namespace {

constexpr const char* kVerlAnswer = "reward_model.ground_truth";

/// Answers are compared as text: numbers keep the digits of the file.
std::string answer_of(const Json& record, const std::string& key) {
  const Json* found = find_key(record, key);
  return found ? answer_text(*found) : std::string();
}

/// Nothing where the line does not say it.
std::string domain_of(const Json& record, const std::string& key, const std::string& where) {
  constexpr size_t kMostBytes = 100;
  const Json* found = find_key(record, key);
  if (!found || found->is_null()) return "";
  if (found->is_string() && found->get_ref<const std::string&>().size() <= kMostBytes) return *found;
  fail(Exit::data, {.what = "the domain of a line is no name",
                    .where = where,
                    .why = found->is_string() ? fmt::format("\"{}\" has more than {} bytes", key, kMostBytes)
                                              : fmt::format("\"{}\" is {}", key, json_kind(*found)),
                    .fix = "correct the line, or set data.domain_key to a key that holds short texts"});
}

}  // namespace

Json template_variables(const Tokenizer& tokenizer, const Json& messages, bool generation_prompt,
                        const Json& arguments) {
  Json variables = arguments;
  std::set<std::string_view> given;
  for (const auto& [key, unused] : arguments.items()) given.insert(key);
  const auto add = [&](const std::string& name, Json value) {
    if (!given.contains(name)) append_member(variables, name, std::move(value));
  };
  add("messages", messages);
  add("add_generation_prompt", generation_prompt);
  for (const auto& [name, token] : tokenizer.special_tokens()) add(name, token);
  return variables;
}

PromptBuilder::PromptBuilder(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                             PromptOptions options)
    : tokenizer_(tokenizer), template_(chat_template), options_(std::move(options)) {
  if (options_.chat && !template_)
    fail(Exit::usage, {.what = "the tokenizer folder has no chat template",
                       .where = "data.chat",
                       .why = "data.chat = true renders prompts through the model's chat template",
                       .fix = "set data.chat = false (generate: leave --chat out), or give "
                              "tokenizer.chat_template = a file"});
}

Json PromptBuilder::messages_of(LineParts parts) const {
  if (parts.messages.is_null())
    parts.messages = Json::array({Json{{"role", "user"}, {"content", std::move(parts.prompt)}}});
  const bool has_system = !parts.messages.empty() && parts.messages.front().value("role", "") == "system";
  if (options_.system_prompt.empty() || has_system) return std::move(parts.messages);
  Json messages = Json::array({Json{{"role", "system"}, {"content", options_.system_prompt}}});
  for (Json& m : parts.messages) messages.push_back(std::move(m));
  return messages;
}

std::string PromptBuilder::render(const Json& messages, const Json& record,
                                  const std::vector<std::string>& used, bool generation_prompt) const {
  Json arguments = Json::object();
  const auto is_argument = [&](const std::string& key) {
    const bool says_messages = key == options_.prompt_key || key == options_.messages_key ||
                               std::find(used.begin(), used.end(), key) != used.end();
    return key == "tools" || (options_.lines_have_arguments && !says_messages);
  };
  for (const auto& [key, value] : record.items())
    if (is_argument(key)) append_member(arguments, key, value);
  for (const auto& [key, value] : options_.chat_arguments.items())
    if (!is_argument(key) || !record.contains(key)) append_member(arguments, key, value);
  return template_->render(template_variables(tokenizer_, messages, generation_prompt, arguments));
}

Prompt PromptBuilder::build(const Json& record, const std::string& where, bool with_response,
                            int64_t turn) const {
  Prompt prompt = read(record, where, with_response, turn);
  prompt.answer = answer_of(record, options_.answer_key);
  if (!options_.domain_key.empty()) prompt.domain = domain_of(record, options_.domain_key, where);
  if (!prompt.tokens.empty()) return prompt;
  const bool silent = !prompt.text.empty();  // the tokenizer drops what its vocabulary lacks
  fail(Exit::data, {.what = "a prompt has no tokens",
                    .where = where,
                    .why = silent ? fmt::format("the tokenizer has no token for any of its text, \"{}\"",
                                                prompt.text.substr(0, 200))
                                  : "its text is empty",
                    .fix = silent ? "use the tokenizer that the model was trained with (tokenizer.path)"
                                  : "correct or remove the line"});
}

bool PromptBuilder::has_response(const Json& record) const {
  try {
    read(record, "", /*with_response=*/true, /*turn=*/0);
    return true;
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    return false;
  }
}

std::string PromptBuilder::where_answer(const Json& record, const std::string& where) const {
  if (find_key(record, options_.answer_key)) return where;
  return fmt::format("{}, which has no key \"{}\" (data.answer_key{})", where, options_.answer_key,
                     find_key(record, kVerlAnswer) ? fmt::format(" = \"{}\" is there", kVerlAnswer) : "");
}

Prompt PromptBuilder::read(const Json& record, const std::string& where, bool with_response,
                           int64_t turn) const {
  Prompt prompt;
  if (const auto at = record.find("tokens"); at != record.end() && !find_key(record, options_.prompt_key)) {
    if (!at->is_array() || at->empty())
      fail(Exit::data, {.what = "\"tokens\" is no list of token ids",
                        .where = where,
                        .why = at->is_array() ? "the list is empty" : "it is " + json_kind(*at),
                        .fix = "write [ids]; `temper tokenize` makes them from text"});
    for (const Json& id : *at) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= tokenizer_.vocab_size())
        fail(Exit::data, {.what = "\"tokens\" holds something that is no token id",
                          .where = where,
                          .why = fmt::format("{}; ids are 0 to {}", id.dump(), tokenizer_.vocab_size() - 1),
                          .fix = "tokenize the text with this tokenizer"});
      prompt.tokens.push_back(id.get<int32_t>());
    }
    prompt.text = tokenizer_.decode(prompt.tokens, /*skip_special=*/false);
    if (with_response) add_plain_response(prompt, response_text(record, options_, where));
    return prompt;
  }
  LineParts parts = line_parts(record, options_, where, with_response);
  if (!options_.chat) {
    prompt.text = std::move(parts.prompt);
    prompt.tokens = tokenizer_.encode(prompt.text, /*add_special=*/true);
    if (with_response) add_plain_response(prompt, parts.response.get<std::string>());
    return prompt;
  }
  if (with_response && options_.train_on == TrainOn::each) keep_turn(parts, turn);
  Json answer = parts.response.is_string() ? Json{{"role", "assistant"}, {"content", parts.response}}
                                           : std::move(parts.response);
  const std::vector<std::string> used = std::move(parts.keys);
  const Asked asked{record, used, where};
  Json messages = messages_of(std::move(parts));
  if (with_response && options_.train_on == TrainOn::all) {
    require_tools_shown(render(messages, record, used, /*generation_prompt=*/true), messages, asked);
    messages.push_back(std::move(answer));
    add_all_turns(prompt, messages, asked);
    return prompt;
  }
  prompt.text = render(messages, record, used, /*generation_prompt=*/true);
  require_tools_shown(prompt.text, messages, asked);
  prompt.tokens = tokenizer_.encode(prompt.text, /*add_special=*/false);
  if (!with_response) return prompt;
  messages.push_back(std::move(answer));
  prompt.response = turn_behind(prompt.text, messages, asked);
  prompt.response_tokens = tokenizer_.encode(prompt.response, /*add_special=*/false);
  return prompt;
}

void PromptBuilder::require_tools_shown(const std::string& text, const Json& messages,
                                        const Asked& asked) const {
  const bool of_line = asked.record.contains("tools");
  const Json& holder = of_line ? asked.record : options_.chat_arguments;
  const auto tools = holder.find("tools");
  if (tools == holder.end() || !tools->is_array() || tools->empty()) return;
  Json without = asked.record;
  without["tools"] = Json::array();
  if (render(messages, without, asked.used, /*generation_prompt=*/true) != text) return;
  fail(Exit::data,
       {.what = fmt::format("the chat template has no place for the tools of {}",
                            of_line ? "a line" : "data.chat_arguments"),
        .where = asked.where,
        .why = fmt::format("its prompt is the same without its key `tools`, which has {}",
                           count_text(std::ssize(*tools), "tool")),
        .fix = fmt::format("remove `tools` from {} and describe them in a system message, or give a template "
                           "that shows tools (tokenizer.chat_template)",
                           of_line ? "the line" : "data.chat_arguments")});
}

std::string PromptBuilder::turn_behind(const std::string& start, const Json& said, const Asked& asked) const {
  const std::string whole = render(said, asked.record, asked.used, /*generation_prompt=*/false);
  if (!whole.starts_with(start))
    fail(Exit::data,
         {.what = "the chat template changes the prompt when the answer is added",
          .where = asked.where,
          .why = "the text with the answer does not begin with the prompt's, so the answer cannot be cut out",
          .fix = "use data.chat = false with prompt and response texts, or another template"});
  // What follows the end-of-turn token (a newline, as a rule) belongs to the next turn and is never sampled.
  std::string turn = whole.substr(start.size());
  if (const auto eos = tokenizer_.special_token("eos_token"))
    if (const size_t end = turn.rfind(*eos); end != std::string::npos) turn.resize(end + eos->size());
  return turn;
}

void PromptBuilder::add_all_turns(Prompt& prompt, const Json& messages, const Asked& asked) const {
  const std::string whole = render(messages, asked.record, asked.used, /*generation_prompt=*/false);
  std::string done;  // up to the end of the last turn
  const auto add = [&](const std::string& text, uint8_t trained) {
    const std::vector<int32_t> ids = tokenizer_.encode(text, /*add_special=*/false);
    prompt.response += text;
    prompt.response_tokens.insert(prompt.response_tokens.end(), ids.begin(), ids.end());
    prompt.response_mask.resize(prompt.response_tokens.size(), trained);
  };
  Json said = Json::array();
  int64_t turn = 0;
  for (const Json& message : messages) {
    const bool trained = message.value("role", "") == "assistant";
    const std::string start = trained ? render(said, asked.record, asked.used, true) : "";
    said.push_back(message);
    if (!trained) continue;
    const std::string text = turn_behind(start, said, asked);
    if (!start.starts_with(done) || !whole.starts_with(start + text))
      fail(Exit::data, {.what = "the chat template renders an earlier turn otherwise than the last one",
                        .where = asked.where,
                        .why = fmt::format("turn {} of the assistant is not in the text of the whole "
                                           "conversation as it was said",
                                           turn + 1),
                        .fix = "set data.train_on = \"each\" or \"last\""});
    if (turn++ == 0)
      prompt.text = start;
    else
      add(start.substr(done.size()), 0);
    add(text, 1);
    done = start + text;
  }
  prompt.tokens = tokenizer_.encode(prompt.text, /*add_special=*/false);
}

void PromptBuilder::add_plain_response(Prompt& prompt, std::string response) const {
  prompt.response = std::move(response);
  prompt.response_tokens = tokenizer_.encode(prompt.response, /*add_special=*/false);
  if (const auto eos = tokenizer_.eos_id()) prompt.response_tokens.push_back(*eos);
}

}  // namespace temper
