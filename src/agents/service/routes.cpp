#include "src/agents/service/routes.h"

#include <array>
#include <string_view>

namespace temper {
namespace {

struct Row {
  std::string_view path;
  Route route;
  bool posts;
};

constexpr std::array kRows{
    Row{"/health", Route::health, false},
    Row{"/v1/models", Route::models, false},
    Row{"/v1/chat/completions", Route::chat, true},
    Row{"/v1/messages", Route::messages, true},
    Row{"/v1/messages/count_tokens", Route::count_tokens, true},
    Row{"/inference/v1/generate", Route::tokens, true},
    Row{"/v1/completions", Route::completions, true},
    Row{"/tokenize", Route::tokenize, true},
    Row{"/detokenize", Route::detokenize, true},
    Row{"/tokenizer_info", Route::tokenizer_info, false},
    Row{"/reward", Route::reward, true},
};
constexpr std::string_view kSessions = "/sessions/";

bool is_json(const std::string& type) {
  std::string kind = type.substr(0, type.find(';'));
  for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  kind.erase(kind.find_last_not_of(" \t") + 1);
  return kind == "application/json";
}

}  // namespace

std::optional<Routed> route_of(const std::string& path) {
  std::string session;
  std::string_view rest = path;
  if (rest.starts_with(kSessions)) {
    rest.remove_prefix(kSessions.size());
    const size_t end = rest.find('/');
    if (end == std::string_view::npos || end == 0) return std::nullopt;
    session = rest.substr(0, end);
    rest.remove_prefix(end);
  }
  for (const Row& row : kRows)
    if (row.path == rest) return Routed{row.route, row.posts, session};
  return std::nullopt;
}

std::optional<DoorError> head_error(const HttpHead& head,
                                    const std::function<bool(const Routed&)>& key_holds) {
  const std::optional<Routed> routed = route_of(head.path);
  if (!routed)
    return DoorError{.status = 404, .message = "there is no such path; GET /health and /v1/models tell more"};
  const std::string method = routed->posts ? "POST" : "GET";
  if (head.method != method && !(method == "GET" && head.method == "HEAD"))
    return DoorError{.status = 405, .message = "this path takes " + method};
  if (routed->route != Route::health && !key_holds(*routed))
    return DoorError{.status = 401,
                     .message = "the key is missing or wrong: Authorization: Bearer KEY, or x-api-key: KEY"};
  const auto type = head.headers.find("content-type");
  if (routed->posts && (type == head.headers.end() || !is_json(type->second)))
    return DoorError{.status = 415, .message = "the body has to be JSON: content-type: application/json"};
  return std::nullopt;
}

bool same_key(const std::string& a, const std::string& b) {
  unsigned char differ = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    differ |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return differ == 0 && !b.empty();
}

}  // namespace temper
