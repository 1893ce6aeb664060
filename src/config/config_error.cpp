#include "src/config/config_error.h"

#include "src/config/values.h"
#include "src/core/check.h"
#include "src/core/text/short_number.h"

namespace temper {

std::string legal_text(const std::vector<Json>& legal) {
  std::string text;
  for (size_t i = 0; i < legal.size(); ++i) {
    if (i > 0) text += i + 1 == legal.size() ? " or " : ", ";
    text += toml_text(legal[i]);
  }
  return text;
}

void fail_config(const std::string& source, const std::vector<ConfigError>& errors) {
  std::string why;
  for (const ConfigError& error : errors) {
    why += fmt::format("{}{}{}: {}", why.empty() ? "" : "\n         ", error.key,
                       error.where.empty() ? "" : " (" + error.where + ")", error.message);
    if (!error.legal.empty())
      why += "\n           write for example " + error.key + " = " + legal_text(error.legal);
  }
  fail(Exit::usage, {.what = count_text(std::ssize(errors), "error") + " in the config",
                     .where = source,
                     .why = why,
                     .fix = "`temper help KEY` shows a key's meaning, unit, default and legal values"});
}

}  // namespace temper
