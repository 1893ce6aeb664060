#pragma once
// Sets of ranks as users write them: "all", "5", "0-7,16-23". White space around numbers is allowed; a rank
// may be named once, ranges ascend, and every rank is below the world size. Never evaluated as code.

#include <string>
#include <string_view>
#include <vector>

namespace temper {

struct RankSet {
  std::vector<int> ranks;  // ascending
  std::string defect;      // why the text is no rank set of this world; empty: it is one
};

/// Work and memory are bounded by world_size, whatever the text.
RankSet read_rank_set(std::string_view text, int world_size);

/// The ranks, ascending; Error(Exit::usage) when there is a defect.
std::vector<int> parse_rank_set(const std::string& text, int world_size);

/// The shortest text of ascending ranks: "0-7,16-23".
std::string rank_set_text(const std::vector<int>& ranks);

}  // namespace temper
