#pragma once
// Models that read the tokens of the policy: each id has to stand for the same text.

#include "src/config/config.h"
#include "src/data/tokenizer/tokenizer.h"

namespace temper {

/// Every folder that a role's section names as its model's: Exit::data, with the first id that differs, where its
/// tokenizer is another one than the policy's, and where its model has fewer ids. A folder without a tokenizer is
/// taken at its number of ids.
void require_same_vocabulary(const Config& config, const Tokenizer& tokenizer);

}  // namespace temper
