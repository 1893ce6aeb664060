#pragma once
// The paths of the server: what may be asked for, by which method, and in whose name.

#include <functional>
#include <optional>
#include <string>

#include "src/agents/doors/door.h"
#include "src/agents/server/http_exchange.h"

namespace temper {

enum class Route {
  health,
  models,
  chat,
  messages,
  count_tokens,
  tokens,
  completions,
  tokenize,
  detokenize,
  tokenizer_info,
  reward
};

struct Routed {
  Route route = Route::health;
  bool posts = false;
  std::string session = {};  // of "/sessions/ID/..."; empty: the key alone names it
};

/// Nothing where the path is none of the server's.
std::optional<Routed> route_of(const std::string& path);
/// The error of a head that is refused, before its body is read; nothing where it may go on. `key_holds`: the
/// key of the head opens the path.
std::optional<DoorError> head_error(const HttpHead& head,
                                    const std::function<bool(const Routed&)>& key_holds);

/// Whether two keys are equal, in a time that does not depend on where they differ.
bool same_key(const std::string& a, const std::string& b);

}  // namespace temper
