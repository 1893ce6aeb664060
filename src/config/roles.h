#pragma once
// The roles of a run as rows: what each does in a step, with which model, and which keys its section of the
// config has. Config, plan, memory, traffic, metrics and report loop over these rows; what runs a role is its
// row in run/roles/role_table.cpp.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

struct Config;

/// Keys of the section roles.<name>.
enum class RoleKey : uint8_t { ranks, path, tp, cp, pp, vpp, ep, stage_layers, zero, offload };

/// Some of the keys.
class RoleKeys {
 public:
  constexpr RoleKeys(std::initializer_list<RoleKey> keys) {
    for (const RoleKey key : keys) bits_ |= bit(key);
  }
  constexpr bool has(RoleKey key) const { return (bits_ & bit(key)) != 0; }

 private:
  static constexpr uint32_t bit(RoleKey key) { return uint32_t{1} << static_cast<unsigned>(key); }
  uint32_t bits_ = 0;
};

/// What a role does with its model in a step.
enum class RoleWork { generates, scores, trains };

struct RoleTraits {
  const char* name;
  RoleWork work;
  bool of_policy;  // its model is the one that the run trains; else one of its own
  RoleKeys keys;
  const char* phase;  // of a step, in tables of memory and work
  bool (*needed)(const Config&);
  /// Why a section of the config has no effect where the role is not needed.
  const char* when_needed;

  constexpr bool trains() const { return work == RoleWork::trains; }
  constexpr bool generates() const { return work == RoleWork::generates; }
  constexpr bool scores() const { return work == RoleWork::scores; }
  /// Its section has a default for every key, and other roles take theirs from it.
  constexpr bool leads() const { return of_policy && trains(); }
};

/// The rows stand in the order of their phases in a step. One of them leads.
std::span<const RoleTraits> built_in_role_traits();

/// Absent keys are those of the role that leads, as far as they fit (run/plan/layout/layout_rules.cpp).
struct RoleSection {
  std::optional<std::string> ranks, path;
  std::optional<int64_t> tp, cp, pp, vpp, ep, zero;
  std::vector<int64_t> stage_layers;  // part by part; empty: balanced
  std::optional<bool> offload;
};

class RolesConfig {
 public:
  RolesConfig(std::span<const RoleTraits> rows = built_in_role_traits());

  std::span<const RoleTraits> rows() const { return rows_; }
  RoleSection& of(std::string_view name) { return sections_.find(name)->second; }
  const RoleSection& of(std::string_view name) const { return sections_.find(name)->second; }
  /// The section of the role that leads.
  RoleSection& lead() { return of(lead_); }
  const RoleSection& lead() const { return of(lead_); }

 private:
  std::span<const RoleTraits> rows_;
  std::map<std::string, RoleSection, std::less<>> sections_;
  std::string lead_;
};

}  // namespace temper
