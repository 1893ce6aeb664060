#pragma once
// nlohmann-json. The body of its literal "..."_json, which nobody writes here, makes every file that sees it
// compile a parser (0.3 s each, and there are hundreds): as a template it is not compiled where it is not
// called.

#define _json(...)    \
  _json(__VA_ARGS__); \
  template <typename> \
  nlohmann::json unused_literal(__VA_ARGS__)
#include <nlohmann/json.hpp>
#undef _json
