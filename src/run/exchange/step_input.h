#pragma once
// What the trainer gets of a step: its groups, and what the ranks that worked on them say about it.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/json.h"
#include "src/rl/types.h"
#include "src/run/exchange/annotation.h"

namespace temper {

/// What a sender says of a step when it closes it; receivers add up.
struct StepNote {
  std::map<std::string, double> sums = {}, maxima = {};  // metrics; sums of integers or of times
  std::map<std::string, double> most = {};  // of the busiest sender; parts of a step that was cut add up
  std::map<int64_t, double> replaced = {};  // prompts whose samples all had this raw reward, by data position
  int64_t num_groups = 0;                   // finished in this step; counted by GroupExchange
  int64_t data_position = 0;                // of the prompts after this step; the largest counts
  bool stop_requested = false;              // any rank's
  bool cut = false;                         // any rank's: the step goes on after a stop
  int64_t round = 0, owed = 0;  // of a step that was cut: of its prompts, those yet to be replaced
};

void add(StepNote& all, const StepNote& note);
/// What was said of a step until a stop cut it.
void add_earlier(StepNote& all, StepNote earlier);
Json note_to_json(const StepNote& note);
StepNote note_from_json(const Json& json);

struct StepInput {
  std::vector<Group> groups;  // ascending by data position, which gives the index of a group in the step
  StepNote note;
};

/// In the place of a sender: what was said of a step until a stop cut it.
inline constexpr int kEarlier = -1;

/// What some of the senders say of a step.
struct Said {
  std::vector<Annotation> annotations = {};
  size_t num_annotations = 0;          // as the notes say
  std::map<int, StepNote> notes = {};  // by sender: sums of times depend on the order
  size_t closed = 0;
};
/// Adds it to the groups of a step: the same in whatever order it came.
void put_together(StepInput& input, Said said, int64_t step);

/// Exact: groups and note come back with the same bits. Reading throws on bytes that are no such step.
std::string step_input_to_bytes(const StepInput& input);
StepInput step_input_from_bytes(std::string_view bytes);

/// The data position of the prompt of a group, which has samples.
int64_t position_of(const Group& group);

}  // namespace temper
