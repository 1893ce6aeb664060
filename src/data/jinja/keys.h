#pragma once
// Finding keys in mappings that may have any number of them: by looking at all while they are few, else by
// hash, so that a mapping of n keys costs n steps to make, not n squared.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/data/jinja/value.h"

namespace temper::jinja {

/// Where keys lie in a list of pairs that only grows at its end.
class KeyPlaces {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  /// The place of the first pair whose key equals `key`, or kNone.
  size_t find(Runtime& runtime, const std::vector<std::pair<Value, Value>>& pairs, const Value& key);

 private:
  std::unordered_multimap<uint64_t, size_t> places_;  // by hash; of the first `seen_` pairs
  size_t seen_ = 0;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;
  KeyPlaces places = {};
};

/// Values by name, in the order in which the names came.
class NameTable {
 public:
  const Value* find(std::string_view name) const;
  void set(std::string_view name, const Value& value);
  void clear();

 private:
  size_t place(std::string_view name) const;  // the number of items: not there

  std::vector<std::pair<std::string_view, Value>> items_;
  std::unordered_map<std::string_view, size_t> places_;  // of all items once they are many
};

struct Namespace {
  NameTable items;
};

}  // namespace temper::jinja
