#pragma once
// What the tables of fields are made of: a section that collects its fields, and the ranges of numbers that
// many of them share.

#include <limits>

#include "src/config/fields.h"

namespace temper {

using Words = std::string_view;
inline constexpr double kHuge = std::numeric_limits<double>::max();
inline constexpr Range kCount{1, 2147483647.0};
inline constexpr Range kCountOrOff{0, 2147483647.0};
inline constexpr Range kShare{0, 1};
inline constexpr Range kTemperature{kLeastTemperature, 1000, false, false, true};
inline constexpr Range kNotNegative{0, kHuge};
inline constexpr Range kPositive{0, kHuge, true};
inline constexpr Range kBytes{1, 9007199254740992.0};  // 2^53

/// Collects the fields of one section.
class Section {
 public:
  Section(std::string name, std::vector<Field>& fields) : name_(std::move(name)), fields_(fields) {}
  template <class T>
  void operator()(const char* key, T& member, KeySpec spec) {
    fields_.push_back({name_ + "." + key, std::move(spec), &member});
  }

 private:
  std::string name_;
  std::vector<Field>& fields_;
};

/// The fields of [algorithm], [train], [lora] and [optimizer]: train_fields.cpp.
void algorithm_fields(AlgorithmConfig& c, Section f);
void train_fields(TrainConfig& c, Section f);
void lora_fields(LoraConfig& c, Section f);
void optimizer_fields(OptimizerConfig& c, Section f);
/// Those of [moe]: moe_fields.cpp.
void moe_fields(MoeSection& c, Section f);
/// The keys of [rollout] with which programs play sessions, and those of such a program, which point into it:
/// sets/agent_fields.cpp.
void agent_fields(RolloutConfig& c, Section f);
std::vector<Field> harness_fields(HarnessConfig& c);
/// The fields of [validation], and those of its keys rollout.*: sets/validation_fields.cpp.
void validation_fields(ValidationConfig& c, std::vector<Field>& fields);
void override_fields(SamplingOverrides& c, Section f);
/// The sections of all roles: role_fields.cpp.
void roles_fields(RolesConfig& c, std::vector<Field>& fields);

}  // namespace temper
