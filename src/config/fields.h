#pragma once
// The field list: every key of the config once, with its place in Config, its rule and its help. Reading,
// overrides, the resolved dump, `temper help` and error messages all walk this list.

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/config/config.h"

namespace temper {

/// What a string or a number stands for, beyond its type.
enum class Format { plain, folder_name, not_empty, duration, rank_set, byte_size, digest };

/// By algorithm.name; rewards: of reinforcement, without a teacher.
enum class Needed { no, always, reinforcement, supervised, rewards };

struct Range {
  double low, high;
  bool above_low = false, below_high = false;  // that bound itself is excluded
  bool or_zero = false;                        // 0 is legal too: off

  bool has(double value) const {
    if (or_zero && value == 0) return true;
    return (above_low ? value > low : value >= low) && (below_high ? value < high : value <= high);
  }
};

struct KeySpec {
  std::string_view help;
  std::string_view unit = {};
  Needed needed = Needed::no;
  Range range{0, 2147483647.0};                    // numbers; the default suits counts
  std::span<const std::string_view> choices = {};  // strings
  std::string_view no_choice = {};                 // why a value that is likely written is none of them
  std::string_view absent = {};                    // the word for an empty optional: "auto", "none"
  std::string_view absent_means = {};              // what an empty optional means
  Format format = Format::plain;
  size_t count = 0;               // lists: exactly this many, 0 = any number
  Json example = {};              // proposed when a value is illegal and there is no default
  std::string_view instead = {};  // key that may be written instead of this one, never beside it
};

using FieldTarget =
    std::variant<std::string*, bool*, int64_t*, uint64_t*, double*, std::optional<bool>*,
                 std::optional<int64_t>*, std::optional<double>*, std::optional<std::string>*,
                 std::vector<std::string>*, std::vector<int64_t>*, std::vector<double>*,
                 std::map<int64_t, double>*, std::optional<std::vector<std::string>>*,
                 std::optional<std::vector<int64_t>>*, std::optional<std::map<int64_t, double>>*,
                 std::vector<DataSource>*, std::vector<ValidationSet>*, std::vector<RewardFunctionConfig>*,
                 std::vector<HarnessConfig>*, std::map<std::string, std::string>*, Json*>;

struct Field {
  std::string key;
  KeySpec spec;
  FieldTarget target;
};

/// Fields of `config`, section by section; they point into it.
std::vector<Field> config_fields(Config& config);

}  // namespace temper
