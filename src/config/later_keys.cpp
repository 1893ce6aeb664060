#include "src/config/later_keys.h"

#include <algorithm>

#include "src/config/roles.h"
#include "src/core/check.h"

namespace temper {

std::vector<LaterKey> later_keys() {
  std::vector<LaterKey> keys{
      {"train.offload.gradients", {"auto", false}, "offloading gradients to host memory"},
      {"train.offload.weights", {"auto", false}, "offloading trained weights to host memory"},
      {"roles.critic", {}, "a critic"},
      {"roles.reward", {}, "reward models"},
  };
  for (const RoleTraits& role : built_in_role_traits()) {
    const auto later = [&](const char* key, const char* feature) {
      keys.push_back({fmt::format("roles.{}.{}", role.name, key), {1}, feature});
    };
    const char* const splits = "splitting a model over ranks in this way";
    if (!role.keys.has(RoleKey::vpp)) later("vpp", splits);
    if (!role.keys.has(RoleKey::cp)) later("cp", splits);
    later("etp",
          "cutting an expert: it lies whole on a rank, so that its products have the bits of one rank "
          "(ep spreads experts)");
    if (!role.keys.has(RoleKey::zero)) later("zero", "sharding weights over the ranks of this role");
  }
  return keys;
}

const LaterKey* find_later(const std::vector<LaterKey>& list, std::string_view key) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const LaterKey& later) { return later.key == key; });
  return found == list.end() ? nullptr : &*found;
}

bool is_off(const LaterKey& later, const Json& value) {
  return std::find(later.off.begin(), later.off.end(), value) != later.off.end();
}

ConfigError later_error(const LaterKey& later, const Json& value, const std::string& where) {
  std::string message = fmt::format("not in this version: {}", later.feature);
  if (later.off.empty())
    message += "; leave it out";
  else
    message += fmt::format("; it is {}, legal: {}", value.is_null() ? "not finite" : value.dump(),
                           legal_text(later.off));
  return {later.key, where, message, later.off};
}

}  // namespace temper
