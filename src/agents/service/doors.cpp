#include "src/agents/service/doors.h"

#include <algorithm>

#include "src/agents/doors/chat_door.h"
#include "src/agents/doors/completions_door.h"
#include "src/agents/doors/fields.h"
#include "src/agents/doors/messages_door.h"
#include "src/agents/doors/tokens_door.h"
#include "src/agents/sessions/refusal.h"

namespace temper {
namespace {

/// How deep and how large bodies may be; the server bounds their bytes, too.
constexpr JsonLimits kBodyLimits{.depth = 64, .bytes = int64_t{1} << 32};
constexpr int64_t kMostValues = 200'000;  // beside the ids of a prompt
constexpr int64_t kBeside = 1 << 20;      // bytes beside its texts
constexpr int64_t kMostEscaped = 6;       // bytes that one of a text can take

/// The bytes of all texts that a value holds; an object counts as one more, as each message is a token.
int64_t bytes_of(const Json& value) {
  if (value.is_string()) return std::ssize(value.get_ref<const std::string&>());
  int64_t bytes = value.is_object();
  if (value.is_structured())
    for (const Json& part : value) bytes += bytes_of(part);
  return bytes;
}

[[noreturn]] void refuse_long(int64_t least, int64_t context_tokens) {
  throw Refusal(Refusal::Code::context_length,
                {.what = "the prompt is too long",
                 .where = "messages",
                 .why = fmt::format("it has {} tokens at least, and with the answer there can be {}", least,
                                    context_tokens),
                 .fix = "send fewer or shorter messages"},
                least, context_tokens);
}

}  // namespace

Doors::Doors(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest_token_ = std::max(longest_token_, std::ssize(tokenizer.token_bytes(id)));
  doors_[Route::chat] = std::make_unique<ChatDoor>(tokenizer);
  doors_[Route::completions] = std::make_unique<CompletionsDoor>(tokenizer);
  doors_[Route::messages] = std::make_unique<MessagesDoor>();
  doors_[Route::tokens] = std::make_unique<TokensDoor>();
}

const Door& Doors::at(Route route) const {
  if (route == Route::count_tokens) route = Route::messages;  // bodies and errors of the same form
  const auto found = doors_.find(route);
  return *(found == doors_.end() ? doors_.at(Route::chat) : found->second);
}

Json Doors::parse(const std::string& body, int64_t context_tokens) const {
  if (std::ssize(body) > kBeside + kMostEscaped * longest_token_ * context_tokens)
    refuse_long((std::ssize(body) - kBeside) / (kMostEscaped * longest_token_), context_tokens);
  const int64_t values = std::ranges::count(body, ',');  // and those in texts, of which few are as long
  if (values > kMostValues + context_tokens)
    throw RequestError(
        {.what = "the body has too many values",
         .where = "",
         .why = fmt::format("{} commas divide them, at most {} may", values, kMostValues + context_tokens),
         .fix = "send fewer or shorter messages"});
  return parse_json(body, "body", kBodyLimits);
}

void Doors::require_short(const Json& texts, int64_t context_tokens) const {
  const int64_t least = bytes_of(texts) / longest_token_;
  if (least <= context_tokens) return;
  refuse_long(least, context_tokens);
}

DoorError too_long(int64_t tokens, int64_t limit) {
  return {.status = 400,
          .message = fmt::format(
              "This model's maximum context length is {} tokens. However, you requested {} tokens", limit,
              tokens),
          .param = "messages",
          .code = "context_length_exceeded",
          .tokens = tokens,
          .limit = limit};
}

DoorError door_error(const Error& error) {
  if (const auto* refusal = dynamic_cast<const Refusal*>(&error)) {
    if (refusal->context_length()) return too_long(refusal->found, refusal->limit);
    return {.status = 400, .message = refusal->message(), .code = std::string(refusal->code())};
  }
  if (const auto* request = dynamic_cast<const RequestError*>(&error)) {
    const std::string& field = request->param();
    return {.status = 400,
            .message = field.empty() ? request->message() : field + ": " + request->message(),
            .param = field};
  }
  return {.status = 400, .message = error.problem().what + ": " + error.problem().why};
}

HttpHeaders error_headers(const DoorError& error) {
  if (!error.retry_after_seconds) return {{"x-should-retry", "false"}};
  return {{"Retry-After", std::to_string(*error.retry_after_seconds)}};
}

HttpRefusal refusal_of(const Doors& doors, const std::string& path, const DoorError& error) {
  const std::optional<Routed> routed = route_of(path);
  return {.status = error.status,
          .body = doors.at(routed ? routed->route : Route::chat).error(error),
          .headers = error_headers(error)};
}

Json model_list(const std::vector<std::string>& names, int64_t context_tokens) {
  Json data = Json::array();
  for (const std::string& name : names)
    data.push_back({{"id", name},
                    {"object", "model"},
                    {"created", 0},
                    {"owned_by", "temper"},
                    {"max_model_len", context_tokens}});
  return {{"object", "list"}, {"data", std::move(data)}};
}

Json describe(Route route, const Json& body, const Tokenizer& tokenizer, int64_t context_tokens) {
  const std::set<std::string> nothing;
  const Json empty = Json::object();
  const Fields fields(body.is_null() ? empty : body, nothing);
  if (route == Route::tokenize) {
    const std::vector<int32_t> ids =
        tokenizer.encode(fields.text("prompt").value_or(""), fields.flag("add_special_tokens", true));
    return {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", context_tokens}};
  }
  if (route == Route::detokenize)
    return {{"prompt", tokenizer.decode(fields.ids("tokens"), /*skip_special=*/false)}};
  if (route == Route::tokenizer_info) {
    Json info = Json::object();
    for (const auto& [name, text] : tokenizer.special_tokens()) info[name] = text;
    return info;
  }
  return {{"status", "ok"}};
}

}  // namespace temper
