#pragma once
// What the page opens with: what was trained on what, how far it is, how well it does.

#include <string>
#include <vector>

#include "src/run/report/history/run_history.h"

namespace temper {

/// One run gets a heading, a sentence, its scores and its facts; several get a table with a column for each.
std::string page_head(const std::vector<RunHistory>& runs);

}  // namespace temper
