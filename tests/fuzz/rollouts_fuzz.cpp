// A file of recorded rollouts. Groups that are taken, written again and read again are the same groups.

#include "src/rl/trajectory_json.h"
#include "tests/fuzz/fuzz.h"

namespace temper {
namespace {

std::string lines_of(const std::vector<Group>& groups) {
  std::string lines;
  for (const Group& group : groups)
    for (const Trajectory& t : group.samples) lines += dump_json_line(trajectory_to_json(t, 1)) + "\n";
  return lines;
}

}  // namespace

void fuzz(std::string_view input) {
  constexpr ReplayLimits kLimits{.vocab_size = 1000, .context_tokens = 64};
  const std::string path = input_file("step-000001.jsonl", input);
  std::vector<Group> groups;
  if (!takes([&] { groups = read_rollouts(path, kLimits); })) return;
  for (const Group& group : groups)
    for (const Trajectory& t : group.samples) {
      require(t.response.mask.size() == t.response.tokens.size(), "a mask of another length");
      require(!t.prompt_tokens.empty() && t.prompt_tokens.size() + t.response.tokens.size() <= 64,
              "too many tokens");
    }
  const std::string lines = lines_of(groups);
  require(lines_of(read_rollouts(input_file("again.jsonl", lines), kLimits)) == lines,
          "read again otherwise:\n" + lines);
}

}  // namespace temper
