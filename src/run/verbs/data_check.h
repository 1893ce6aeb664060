#pragma once
// What `temper check` finds when it opens the model folder, the tokenizer and the data of a config whose plan
// is sound. Of large files a sample is looked at (data/lines.h), so that it takes seconds.

#include <optional>
#include <string>
#include <vector>

#include "src/core/json.h"
#include "src/data/prompt_builder.h"
#include "src/run/plan/plan.h"

namespace temper {

struct DataCheck {
  /// {"rows", "rows_are", "looked_at", "sample", "first_prompt": {"text", "ids", "where", "answer"},
  /// "lengths": {"p50", "p95", "max"}, "max_prompt_tokens", "overlong", "overlong_rule",
  /// "answers": {"looked_at", "unreadable", "unmatched", "why"}}: lengths are tokens of prompts. Null: it could not be
  /// opened.
  Json data;
  std::optional<Prompt> first;  // of the first line
  Json first_record;
  std::vector<PlanError> errors;  // for which `train` ends with Exit::data
  std::vector<std::string> warnings;
};

DataCheck check_data(const Config& config, const RunPlan& plan, const ModelConfig& facts);

/// DataCheck::data for people.
std::string data_text(const Json& data);

}  // namespace temper
