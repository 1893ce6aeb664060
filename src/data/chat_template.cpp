#include "src/data/chat_template.h"

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/data/jinja/ast.h"
#include "src/data/jinja/evaluate/evaluator.h"
#include "src/data/jinja/text.h"

namespace temper {
namespace {

constexpr int64_t kMaxTemplateBytes = int64_t{1} << 20;

/// The text under chat_template: a string, or the entry "default" of a list of {name, template}.
std::optional<std::string> named_template(const Json& config, const std::string& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  std::string names;
  if (found->is_array()) {
    for (const Json& entry : *found) {
      if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
          !entry.contains("template") || !entry["template"].is_string())
        continue;
      if (entry["name"] == "default") return entry["template"].get<std::string>();
      names += fmt::format("{}{}", names.empty() ? "" : ", ", entry["name"].get<std::string>());
    }
  }
  fail(Exit::data,
       {.what = "no default chat template",
        .where = path + ": chat_template",
        .why = found->is_array()
                   ? fmt::format("a list of {} templates ({}), none named default", found->size(), names)
                   : fmt::format("expected a string or a list, found {}", found->type_name()),
        .fix = "put the wanted template into chat_template.jinja of that folder"});
}

/// A message without its null members: templates print `none`, or fail on it, and take a missing key well.
/// Its reasoning is found under both names that templates read, whichever it came as.
Json prepare_message(const Json& message) {
  const Json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    reasoning = &*found;
    break;
  }
  const auto given = message.find("thinking");
  Json prepared = Json::object();
  if (reasoning)
    append_member(prepared, "thinking", given == message.end() || given->is_null() ? *reasoning : *given);
  bool named = false;
  for (const auto& [key, value] : message.items()) {
    if (value.is_null() || (reasoning && key == "thinking")) continue;
    const bool content = reasoning && key == "reasoning_content";
    named |= content;
    append_member(prepared, key, content ? *reasoning : value);
  }
  if (reasoning && !named) append_member(prepared, "reasoning_content", *reasoning);
  return prepared;
}

[[noreturn]] void fail_list(const std::string& name, const std::string& source, const Json& found) {
  fail(Exit::data, {.what = fmt::format("the chat template wants a list of {}", name),
                    .where = source,
                    .why = fmt::format("`{}` is {}", name, found.type_name()),
                    .fix = fmt::format("give {} as a list of objects", name)});
}

/// `messages`, `tools` and `documents`: lists of objects.
void check_objects(const std::string& name, const std::string& source, const Json& list) {
  if (!list.is_array()) fail_list(name, source, list);
  for (size_t i = 0; i < list.size(); ++i)
    if (!list[i].is_object())
      fail(Exit::data, {.what = fmt::format("one of the {} is not an object", name),
                        .where = fmt::format("{}: {}[{}]", source, name, i),
                        .why = fmt::format("found {}", list[i].type_name()),
                        .fix = fmt::format("give {} as a list of objects", name)});
}

Json prepare_messages(const Json& messages, const std::string& source) {
  check_objects("messages", source, messages);
  Json prepared = Json::array();
  for (const Json& message : messages) prepared.push_back(prepare_message(message));
  return prepared;
}

/// What transformers hands to a template beside the caller's own variables.
Json prepare_variables(const Json& variables, const std::string& source) {
  if (!variables.is_object())
    fail(Exit::data, {.what = "the variables of a chat template are not an object",
                      .where = source,
                      .why = fmt::format("found {}", variables.type_name()),
                      .fix = "give {\"messages\": [...], ...}"});
  Json prepared = Json::object();
  for (const char* name : {"tools", "documents"}) {
    const auto given = variables.find(name);
    if (given == variables.end())
      append_member(prepared, name, nullptr);
    else if (!given->is_null())
      check_objects(name, source, *given);
  }
  if (!variables.contains("add_generation_prompt")) append_member(prepared, "add_generation_prompt", false);
  for (const auto& [name, value] : variables.items())
    append_member(prepared, name, name == "messages" ? prepare_messages(value, source) : value);
  return prepared;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string text, std::string source) : source_(std::move(source)) {
  const auto bytes = static_cast<int64_t>(text.size());
  if (bytes > kMaxTemplateBytes)
    fail(Exit::data, {.what = "the chat template is too large",
                      .where = source_,
                      .why = fmt::format("{} bytes, the limit is {}", bytes, kMaxTemplateBytes),
                      .fix = "check that this is a chat template"});
  if (!jinja::valid_utf8(text))
    fail(Exit::data, {.what = "the chat template is not valid UTF-8",
                      .where = source_,
                      .why = "templates are read as UTF-8",
                      .fix = "save it as UTF-8"});
  digest_ = digest_of_text(source_, text);
  program_ = std::make_unique<const jinja::Program>(jinja::parse_template(text, source_));
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::optional<ChatTemplate> ChatTemplate::load(const std::string& folder) {
  const std::string file = join_path(folder, "chat_template.jinja");
  if (path_exists(file)) return ChatTemplate(read_file(file, kMaxTemplateBytes), file);
  const std::string config = join_path(folder, "tokenizer_config.json");
  if (!path_exists(config)) return std::nullopt;
  auto text = named_template(read_json_file(config), config);
  if (!text) return std::nullopt;
  return ChatTemplate(std::move(*text), config + ": chat_template");
}

std::string ChatTemplate::render(const Json& variables, const TemplateLimits& limits) const {
  jinja::Runtime runtime(source_, limits);
  jinja::Evaluator evaluator(runtime);
  return evaluator.run(*program_, prepare_variables(variables, source_));
}

}  // namespace temper
