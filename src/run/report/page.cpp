#include "src/run/report/page.h"

#include <spdlog/fmt/fmt.h>

#include "src/run/report/html.h"
#include "src/run/report/page_charts.h"
#include "src/run/report/page_head.h"
#include "src/run/report/page_style.h"
#include "src/run/report/page_text.h"

namespace temper {

std::string report_page(const std::vector<RunHistory>& runs) {
  std::string names;
  for (const RunHistory& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  const std::string samples = sample_section(runs), events = event_section(runs),
                    phases = phase_section(runs);
  std::string links = "<a href=#curves>Curves</a>";
  if (!phases.empty()) links += "<a href=#phases>Time of a step</a>";
  if (!samples.empty()) links += "<a href=#samples>Samples</a>";
  if (!events.empty()) links += "<a href=#starts>Starts and stops</a>";
  links += "<a href=#config>Config</a>";
  // A page that may load and run nothing: what a run has written cannot make it do so either.
  return fmt::format(
             "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport "
             "content=\"width=device-width,initial-scale=1\"><meta http-equiv=Content-Security-Policy "
             "content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>{} - temper report</title>"
             "<style>{}</style></head><body><main>",
             html_of_at_most(names, 300), kPageStyle) +
         page_head(runs) + notes_html(runs) + "<nav>" + links + "</nav><div id=curves>" +
         metric_sections(runs) + "</div>" + phases + samples + events + config_section(runs) +
         "</main></body></html>\n";
}

}  // namespace temper
