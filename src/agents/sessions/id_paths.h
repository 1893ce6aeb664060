#pragma once
// Turns by all their ids, from the first of the prompt to the last that was sampled.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace temper {

class IdPaths {
 public:
  /// `digest`: of the ids, `length` of them.
  void add(const std::string& digest, int64_t length, size_t turn) { turns_[length][digest].push_back(turn); }

  /// The turns with the most ids of those whose ids `prompt` begins with. One look at each id.
  std::vector<size_t> deepest(std::span<const int32_t> prompt) const;
  /// Those with exactly these ids.
  const std::vector<size_t>& of(const std::string& digest, int64_t length) const {
    return turns_.at(length).at(digest);
  }

 private:
  std::map<int64_t, std::unordered_map<std::string, std::vector<size_t>>> turns_;  // by length, digest
};

}  // namespace temper
