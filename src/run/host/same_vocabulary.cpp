#include "src/run/host/same_vocabulary.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/text/printable.h"
#include "src/run/host/model_host.h"
#include "src/run/plan/model_facts.h"

namespace temper {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  fail(Exit::data, {.what = "the model of a role has another vocabulary than the policy",
                    .where = where,
                    .why = why,
                    .fix = "name a model of the same family, whose tokenizer.json has the same tokens"});
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.vocab_size() ? fmt::format("\"{}\"", printable(tokenizer.token_bytes(id)))
                                     : "no token";
}

/// The first id that stands for something else; -1: none.
int32_t first_difference(const Tokenizer& a, const Tokenizer& b) {
  const int32_t all = std::max(a.vocab_size(), b.vocab_size());
  for (int32_t id = 0; id < all; ++id) {
    if (id >= a.vocab_size() || id >= b.vocab_size()) return id;
    if (a.token_bytes(id) != b.token_bytes(id)) return id;
  }
  return -1;
}

}  // namespace

void require_same_vocabulary(const Config& config, const Tokenizer& tokenizer) {
  for (const RoleTraits& role : config.roles.rows()) {
    const std::optional<std::string>& folder = config.roles.of(role.name).path;
    if (!folder || !role.needed(config)) continue;
    const std::string where = fmt::format("roles.{}.path, {}", role.name, *folder);
    if (const int64_t ids = read_model_facts(*folder).vocab_size; ids < tokenizer.vocab_size())
      refuse(where,
             fmt::format("it has {} ids, and the tokenizer of the policy {}", ids, tokenizer.vocab_size()));
    if (!has_tokenizer(*folder)) continue;
    const Tokenizer own = Tokenizer::load(*folder);
    if (const int32_t id = first_difference(tokenizer, own); id >= 0)
      refuse(where, fmt::format("token {} is {} there, and {} of the policy", id, token_text(own, id),
                                token_text(tokenizer, id)));
  }
}

}  // namespace temper
