#pragma once
// Typed access to one object of a config.json. null counts as absent. A wrong type or range is
// Error(Exit::data) that names file, key, value and what is allowed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/json.h"

namespace temper {

class ConfigReader {
 public:
  /// `prefix` is put before keys in messages ("rope_scaling."). The object must be one.
  ConfigReader(const Json& object, const std::string& source, std::string prefix = {},
               std::vector<std::string>* warnings = nullptr);

  bool has(const std::string& key) const { return object_.contains(key); }  // true for null
  /// The value, or nullptr if absent or null.
  const Json* find(const std::string& key) const;
  std::optional<int64_t> integer(const std::string& key, int64_t low, int64_t high) const;
  /// Finite; low <= value <= high.
  std::optional<double> number(const std::string& key, double low, double high) const;
  std::optional<bool> flag(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  std::vector<double> numbers(const std::string& key, size_t count, double low, double high) const;
  /// An integer or a list of integers in [0, 2^31); empty if absent.
  std::vector<int64_t> ids(const std::string& key) const;

  [[noreturn]] void refuse(const std::string& key, const std::string& why, const std::string& fix = {}) const;
  void warn(const std::string& line) const;
  const std::string& source() const { return source_; }

 private:
  const Json& object_;
  std::string source_, prefix_;
  std::vector<std::string>* warnings_;
};

}  // namespace temper
