#pragma once
// What is said of a value that a key cannot take.

#include <limits>
#include <string>
#include <vector>

#include "src/config/values.h"

namespace temper {

/// Says why the value of a field cannot be taken, and which values could. Both outlive it.
class Refusals {
 public:
  Refusals(const TomlNode& node, const Field& field) : node_(node), field_(field), spec_(field.spec) {}

  BadValue because(std::string why, std::vector<Json> legal) const {
    return {std::move(why), std::move(legal)};
  }
  BadValue illegal(const TomlNode& node, std::vector<Json> legal) const;
  BadValue wrong_type(std::vector<Json> legal) const { return wrong_type(node_, std::move(legal)); }
  BadValue wrong_type(const TomlNode& node, std::vector<Json> legal) const;

  /// Numbers to propose beside `value`; the default list where that was an item: a number is no list.
  std::vector<Json> numbers(bool whole, double value = std::numeric_limits<double>::quiet_NaN()) const;
  /// The words that are legal; of a list, lists of one of them.
  std::vector<Json> choices() const;
  /// What is proposed for a text that may not be empty: its default, if that is a text.
  std::vector<Json> texts() const;

 private:
  std::vector<Json> proposals(bool whole, double value) const;
  bool is_list() const;

  const TomlNode& node_;
  const Field& field_;
  const KeySpec& spec_;
};

}  // namespace temper
