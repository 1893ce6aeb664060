// Groups as bytes, as checkpoints hold them and ranks send them. Whoever reads a checkpoint turns every
// exception into its own; here those of groups_from_bytes are internal ones. What is taken gives the same
// bytes again.

#include "src/rl/trajectory_bytes.h"
#include "tests/fuzz/fuzz.h"

namespace temper {

void fuzz(std::string_view input) {
  std::vector<Group> groups;
  try {
    groups = groups_from_bytes(input);
  } catch (const Error&) {
    return;
  }
  require(groups_to_bytes(groups) == input, "other bytes from the groups");
}

}  // namespace temper
