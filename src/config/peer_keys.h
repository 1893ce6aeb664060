#pragma once
// Where the batch keys of other trainers live in temper: for hints on unknown keys and `check
// --explain-batch`.

#include <span>
#include <string>
#include <string_view>

namespace temper {

struct PeerKey {
  std::string_view peer;
  std::string_view theirs;
  std::string_view ours;  // key of temper, or empty when there is none
  std::string_view note;  // how the numbers relate
};

std::span<const PeerKey> peer_keys();

/// "; verl's `rollout.n` is rollout.samples_per_prompt here (...)", or nothing.
std::string peer_key_hint(std::string_view key);

}  // namespace temper
