#pragma once
// The section [moe] of the config: what is done to the routers of a mixture of experts.

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

inline constexpr std::array<std::string_view, 3> kAuxLosses{"sequence", "global", "z"};
inline constexpr std::array<std::string_view, 2> kRouteReplays{"none", "rollout"};

struct MoeSection {
  bool freeze_router = false;         // key moe.router.freeze
  std::vector<std::string> aux_loss;  // of kAuxLosses; written "none" where empty
  double aux_coef = 0;                // of "sequence" and of "global"
  double z_coef = 0;                  // of "z"
  bool record_routes = false;
  std::string replay = "none";  // of kRouteReplays; all but "none" record
};

}  // namespace temper
