#pragma once
// What a stage adds to the groups of a step: values of a named field of one sample. The fields that there
// are:
//   ref_logprobs         one value per response token
//   teacher_logprobs     one value per response token
//   reward_parts/NAME    one value

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/rl/types.h"

namespace temper {

struct Annotation {
  int64_t data_position = 0;
  int32_t sample = 0;
  std::string field;
  std::vector<double> values;
};

/// Puts the values into the sample. Exit::internal for an unknown field, a wrong number of values, and a
/// field that the sample has already.
void apply(const Annotation& annotation, Trajectory& sample);

/// Exact; reading checks every length, so a damaged message is Exit::internal.
std::string annotations_to_bytes(const std::vector<Annotation>& annotations);
std::vector<Annotation> annotations_from_bytes(std::string_view bytes);

}  // namespace temper
