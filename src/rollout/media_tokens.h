#pragma once
// Tokens in whose place a vision tower would put rows of its own: the text model alone is read, so that no
// sequence may hold them.

#include <algorithm>
#include <string>
#include <vector>

#include "src/core/check.h"

namespace temper {

/// Error(Exit::data) at `where` for `what` ("a prompt") with one of `media` (ModelConfig::media_token_ids),
/// which names the token and its place.
inline void require_text(const std::vector<int32_t>& tokens, const std::vector<int64_t>& media,
                         const std::string& what, const std::string& where) {
  const auto at = std::ranges::find_if(
      tokens, [&](int32_t id) { return std::ranges::find(media, int64_t{id}) != media.end(); });
  if (at == tokens.end()) return;
  fail(Exit::data, {.what = what + " holds an image or a video",
                    .where = where,
                    .why = fmt::format("token {} at place {} of {} stands for one, and the text model alone "
                                       "is read",
                                       *at, at - tokens.begin() + 1, tokens.size()),
                    .fix = "take lines with images or videos out of the data"});
}

}  // namespace temper
