#include "src/agents/doors/error_types.h"

#include <algorithm>
#include <array>

namespace temper {
namespace {

struct Row {
  int status;
  ErrorTypes types;
};
constexpr std::array kRows{
    Row{401, {"authentication_error", "authentication_error"}},
    Row{404, {"not_found_error", "not_found_error"}},
    Row{413, {"request_too_large", "request_too_large"}},
    Row{429, {"rate_limit_error", "rate_limit_error"}},
    Row{503, {"server_error", "overloaded_error"}},
};

}  // namespace

ErrorTypes error_types(int status) {
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.status == status; });
  if (row != kRows.end()) return row->types;
  if (status >= 500) return {"server_error", "api_error"};
  return {"invalid_request_error", "invalid_request_error"};
}

}  // namespace temper
