#pragma once
// The doors of a server, by route, and what all lanes say alike.

#include <map>

#include "src/agents/doors/door.h"
#include "src/agents/server/http_exchange.h"
#include "src/agents/service/routes.h"
#include "src/core/json.h"

namespace temper {

class Doors {
 public:
  explicit Doors(const Tokenizer& tokenizer);
  /// The door of a route that asks for turns; that of chat for all others, whose errors have its form.
  const Door& at(Route route) const;
  const Tokenizer& tokenizer() const { return tokenizer_; }
  /// A body as JSON; Error(Exit::data) where it is none, or has more values or bytes than a prompt of so
  /// many tokens needs: others would have to wait while it is read.
  Json parse(const std::string& body, int64_t context_tokens) const;
  /// Refusal where texts (or values that hold them) have more bytes than so many tokens can say: what surely
  /// is too long costs no rendering and no tokenizing, for which others would have to wait.
  void require_short(const Json& texts, int64_t context_tokens) const;

 private:
  const Tokenizer& tokenizer_;
  int64_t longest_token_ = 1;  // bytes
  std::map<Route, std::unique_ptr<Door>> doors_;
};

/// What a client that asked in vain is told.
DoorError door_error(const Error& error);
DoorError too_long(int64_t tokens, int64_t limit);
/// The headers of an error that clients obey.
HttpHeaders error_headers(const DoorError& error);
/// An error in the form of the door that the path leads to.
HttpRefusal refusal_of(const Doors& doors, const std::string& path, const DoorError& error);
/// {"object": "list", "data": [{"id", "max_model_len", ...}, ...]}
Json model_list(const std::vector<std::string>& names, int64_t context_tokens);
/// The answers of paths that ask for no turn: health, tokenize and the like.
Json describe(Route route, const Json& body, const Tokenizer& tokenizer, int64_t context_tokens);

}  // namespace temper
