#include "src/agents/service/paused_session.h"

#include "src/core/check.h"

namespace temper {

std::string paused_to_text(const PausedSession& paused) {
  return dump_json_line({{"session", paused.session},
                         {"spent", Json(std::vector(paused.spent.begin(), paused.spent.end()))},
                         {"heard", Json(std::vector(paused.heard.begin(), paused.heard.end()))}});
}

PausedSession paused_from_text(const std::string& text) {
  const Json said = parse_json(text, "record of a session");
  PausedSession paused;
  try {
    paused.session = said.at("session");
    for (const auto& [turn, tokens] : said.at("spent").get<std::vector<std::pair<size_t, int64_t>>>())
      paused.spent[turn] = tokens;
    for (const auto& [turn, heard] : said.at("heard").get<std::vector<std::pair<size_t, std::string>>>())
      paused.heard[turn] = heard;
  } catch (const Json::exception& e) {
    fail(Exit::data, {.what = "the record of a session cannot be read",
                      .where = "record of a session",
                      .why = e.what(),
                      .fix = "use another checkpoint"});
  }
  return paused;
}

}  // namespace temper
