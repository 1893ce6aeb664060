#pragma once
// Where the keys of other trainers live in temper: for hints on unknown keys; those of the batch for `check
// --explain-batch`, too.

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

/// Names outside of the batch, for one thing, and what there is to say of them.
struct PeerName {
  std::string_view names;  // with spaces between them
  std::string_view says;   // goes on behind the name: "is `KEY` here: ..." or "has no key here: ..."
};

std::span<const PeerName> peer_names();

/// "; verl's `rollout.n` is rollout.samples_per_prompt here (...)", "; `beta` is ...", or nothing.
std::string peer_key_hint(std::string_view typed);

}  // namespace temper
