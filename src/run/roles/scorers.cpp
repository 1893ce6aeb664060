// The roles that score with a model of their own.

#include "src/run/roles/scoring_role.h"

namespace temper {
namespace {

constexpr ScoredAs kReference{
    "ref_logprobs", &Trajectory::ref_logprobs, "timing_s/ref", {30, "reference", "reference", "samples"}};
constexpr ScoredAs kTeacher{"teacher_logprobs",
                            &Trajectory::teacher_logprobs,
                            "timing_s/teacher",
                            {31, "teacher", "teacher", "samples"}};

}  // namespace

std::unique_ptr<Role> make_reference_role(const RoleParts& parts) {
  return std::make_unique<ScoringRole>(parts, kReference);
}
std::unique_ptr<Role> make_teacher_role(const RoleParts& parts) {
  return std::make_unique<ScoringRole>(parts, kTeacher);
}

}  // namespace temper
