#include "src/data/prompt_builder.h"

#include <set>

#include "src/core/big_integer.h"
#include "src/core/check.h"
#include "src/core/text/answer_text.h"

namespace temper {
namespace {

constexpr const char* kVerlAnswer = "reward_model.ground_truth";

/// "a.b" is that key, or else b inside of a. Null: neither is there.
const Json* find_key(const Json& record, const std::string& key) {
  if (const auto at = record.find(key); at != record.end()) return &*at;
  const size_t dot = key.find('.');
  if (dot == std::string::npos) return nullptr;
  const auto outer = record.find(key.substr(0, dot));
  if (outer == record.end() || !outer->is_object()) return nullptr;
  return find_key(*outer, key.substr(dot + 1));
}

bool is_messages(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_object() && value.front().contains("role");
}

/// The keys of a line that lacks the one that was looked for.
std::string keys_of(const Json& record) {
  constexpr size_t kMost = 8, kLongest = 40;
  std::string names;
  size_t count = 0;
  for (const auto& [key, unused] : record.items())
    if (++count <= kMost)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", dump_json_line(key.substr(0, kLongest)));
  return names.empty() ? "none" : names + (count > kMost ? fmt::format(" and {} more", count - kMost) : "");
}

std::string text_of(const Json& record, const std::string& key, const std::string& where) {
  const Json* found = find_key(record, key);
  if (found && found->is_string()) return found->get<std::string>();
  const bool messages = found && is_messages(*found);
  fail(Exit::data,
       {.what = fmt::format("a data line has no text \"{}\"", key),
        .where = where,
        .why = !found ? "the key is missing; keys of the line: " + keys_of(record)
                      : fmt::format("it is {}", messages ? "a list of chat messages" : json_kind(*found)),
        .fix = messages ? fmt::format("set data.messages_key = \"{}\" and data.chat = true", key)
                        : "correct the line, or set data.prompt_key / data.messages_key / data.response_key "
                          "(generate: --prompt-key)"});
}

/// Answers are compared as text: numbers keep the digits of the file.
std::string answer_of(const Json& record, const std::string& key) {
  const Json* found = find_key(record, key);
  return found ? answer_text(*found) : std::string();
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

Json PromptBuilder::messages_of(const Json& record, const std::string& where) const {
  const Json* at = options_.messages_key.empty() ? nullptr : find_key(record, options_.messages_key);
  Json messages = Json::array();
  if (!at) {
    if (!options_.system_prompt.empty())
      messages.push_back({{"role", "system"}, {"content", options_.system_prompt}});
    messages.push_back({{"role", "user"}, {"content", text_of(record, options_.prompt_key, where)}});
    return messages;
  }
  if (!at->is_array() || at->empty())
    fail(Exit::data, {.what = fmt::format("\"{}\" is not a list of messages", options_.messages_key),
                      .where = where,
                      .why = at->is_array() ? "the list is empty" : "it is " + json_kind(*at),
                      .fix = "write [{\"role\": ..., \"content\": ...}, ...]"});
  const bool has_system = at->front().is_object() && at->front().value("role", "") == "system";
  if (!options_.system_prompt.empty() && !has_system)
    messages.push_back({{"role", "system"}, {"content", options_.system_prompt}});
  for (const Json& m : *at) {
    if (!m.is_object() || !m.contains("role") || !m["role"].is_string())
      fail(Exit::data, {.what = "a message has no role",
                        .where = where,
                        .why = m.is_object() ? "\"role\" is missing or not a text" : "it is " + json_kind(m),
                        .fix = "each is {\"role\": ..., \"content\": ...}"});
    messages.push_back(m);
  }
  return messages;
}

std::string PromptBuilder::render(const Json& messages, const Json& record, bool generation_prompt) const {
  Json arguments = Json::object();
  const auto is_argument = [&](const std::string& key) {
    const bool says_messages = key == options_.prompt_key || key == options_.messages_key;
    return key == "tools" || (options_.lines_have_arguments && !says_messages);
  };
  for (const auto& [key, value] : record.items())
    if (is_argument(key)) append_member(arguments, key, value);
  for (const auto& [key, value] : options_.chat_arguments.items())
    if (!is_argument(key) || !record.contains(key)) append_member(arguments, key, value);
  return template_->render(template_variables(tokenizer_, messages, generation_prompt, arguments));
}

Prompt PromptBuilder::build(const Json& record, const std::string& where, bool with_response) const {
  Prompt prompt = read(record, where, with_response);
  prompt.answer = answer_of(record, options_.answer_key);
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

std::string PromptBuilder::where_answer(const Json& record, const std::string& where) const {
  if (find_key(record, options_.answer_key)) return where;
  return fmt::format("{}, which has no key \"{}\" (data.answer_key{})", where, options_.answer_key,
                     find_key(record, kVerlAnswer) ? fmt::format(" = \"{}\" is there", kVerlAnswer) : "");
}

Prompt PromptBuilder::read(const Json& record, const std::string& where, bool with_response) const {
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
    if (with_response) add_plain_response(prompt, record, where);
    return prompt;
  }
  if (!options_.chat) {
    prompt.text = text_of(record, options_.prompt_key, where);
    prompt.tokens = tokenizer_.encode(prompt.text, /*add_special=*/true);
    if (with_response) add_plain_response(prompt, record, where);
    return prompt;
  }
  Json messages = messages_of(record, where);
  Json answer;
  if (with_response) {
    if (messages.back()["role"] == "assistant") {
      answer = messages.back();
      messages.erase(messages.size() - 1);
    } else {
      answer = {{"role", "assistant"}, {"content", text_of(record, options_.response_key, where)}};
    }
  }
  prompt.text = render(messages, record, /*generation_prompt=*/true);
  prompt.tokens = tokenizer_.encode(prompt.text, /*add_special=*/false);
  if (!with_response) return prompt;
  messages.push_back(answer);
  std::string whole = render(messages, record, /*generation_prompt=*/false);
  if (!whole.starts_with(prompt.text))
    fail(Exit::data,
         {.what = "the chat template changes the prompt when the answer is added",
          .where = where,
          .why = "the text with the answer does not begin with the prompt's, so the answer cannot be cut out",
          .fix = "use data.chat = false with prompt and response texts, or another template"});
  // What follows the end-of-turn token (a newline, as a rule) belongs to the next turn and is never sampled.
  prompt.response = whole.substr(prompt.text.size());
  if (const auto eos = tokenizer_.special_token("eos_token"))
    if (const size_t end = prompt.response.rfind(*eos); end != std::string::npos)
      prompt.response.resize(end + eos->size());
  prompt.response_tokens = tokenizer_.encode(prompt.response, /*add_special=*/false);
  return prompt;
}

void PromptBuilder::add_plain_response(Prompt& prompt, const Json& record, const std::string& where) const {
  prompt.response = text_of(record, options_.response_key, where);
  prompt.response_tokens = tokenizer_.encode(prompt.response, /*add_special=*/false);
  if (const auto eos = tokenizer_.eos_id()) prompt.response_tokens.push_back(*eos);
}

}  // namespace temper
