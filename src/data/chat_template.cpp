#include "src/data/chat_template.h"

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/data/jinja/ast.h"
#include "src/data/jinja/evaluator.h"
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

/// Reasoning of a message is found under both names that templates read, whichever it came as.
Json alias_reasoning(Json message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    const Json reasoning = *found;
    Json aliased = Json::object();
    if (!message.contains("thinking")) aliased["thinking"] = reasoning;
    for (const auto& [key, value] : message.items()) aliased[key] = value;
    aliased["reasoning_content"] = reasoning;
    return aliased;
  }
  return message;
}

Json prepare_messages(const Json& messages, const std::string& source) {
  if (!messages.is_array())
    fail(Exit::data, {.what = "the chat template wants a list of messages",
                      .where = source,
                      .why = fmt::format("`messages` is {}", messages.type_name()),
                      .fix = "give messages as [{\"role\": ..., \"content\": ...}, ...]"});
  Json prepared = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object())
      fail(Exit::data, {.what = "a message is not an object",
                        .where = fmt::format("{}: messages[{}]", source, prepared.size()),
                        .why = fmt::format("found {}", message.type_name()),
                        .fix = "give messages as [{\"role\": ..., \"content\": ...}, ...]"});
    Json kept = Json::object();
    for (const auto& [key, value] : message.items())
      if (!value.is_null() || key == "content") kept[key] = value;
    prepared.push_back(alias_reasoning(std::move(kept)));
  }
  return prepared;
}

/// What transformers hands to a template beside the caller's own variables.
Json prepare_variables(const Json& variables, const std::string& source) {
  if (!variables.is_object())
    fail(Exit::data, {.what = "the variables of a chat template are not an object",
                      .where = source,
                      .why = fmt::format("found {}", variables.type_name()),
                      .fix = "give {\"messages\": [...], ...}"});
  Json prepared = {{"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", false}};
  for (const auto& [name, value] : variables.items())
    prepared[name] = name == "messages" ? prepare_messages(value, source) : value;
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
