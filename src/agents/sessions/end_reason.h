#pragma once
// How a session ended, and what it is worth.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper {

/// done: the program said that it is through. no_start: it could not be started. died: it exited otherwise
/// than with 0. late: its time was over. nonsense: what it said is not what was agreed. no_request: it never
/// asked the policy. no_reward: nothing gave a reward. limit: of turns or tokens.
enum class EndReason { done, no_start, died, late, nonsense, no_request, no_reward, limit };

inline constexpr std::array<std::string_view, 8> kEndReasons = {
    "done", "no_start", "died", "late", "nonsense", "no_request", "no_reward", "limit"};

inline std::string_view end_reason_name(EndReason reason) { return kEndReasons[static_cast<size_t>(reason)]; }

struct SessionEnd {
  EndReason reason = EndReason::done;
  std::optional<double> reward = {};
  std::vector<std::pair<std::string, double>> parts = {};  // as the program named them
};

}  // namespace temper
