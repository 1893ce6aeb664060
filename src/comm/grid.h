#pragma once
// The ranks of a role as a grid with named axes, and the named groups of ranks in it. Pure numbers: the plan
// and the meshes of a run ask the same type. An axis is a row of kAxes, a group a row of kGroups.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <vector>

namespace temper {

/// What sends most is next to each other: number = tp_i + tp (cp_i + cp (dp_i + dp pp_i)). Experts cut the
/// ranks of a stage in another way: number = ep_i + ep (edp_i + edp pp_i), with ep edp = tp cp dp.
enum class Axis : uint8_t { tp, cp, dp, pp, ep, edp };

struct AxisRow {
  Axis axis;
  const char* name;
  bool within_layers;  // ranks exchange in every layer: they belong on one node
};
inline constexpr AxisRow kAxes[] = {
    {Axis::tp, "tp", true}, {Axis::cp, "cp", true}, {Axis::dp, "dp", false}, {Axis::pp, "pp", false}};
/// The axes of experts: ranks with blocks of their own, and those with the same block.
inline constexpr AxisRow kExpertAxes[] = {
    {Axis::ep, "ep", true}, {Axis::edp, "edp", false}, {Axis::pp, "pp", false}};
/// Axes over which bytes are counted; those of edp are dp's.
inline constexpr AxisRow kTrafficAxes[] = {kAxes[0], kAxes[1], kAxes[2], kAxes[3], kExpertAxes[0]};
inline constexpr size_t kNumAxes = 6;

/// Some of the axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(1u << static_cast<unsigned>(axis)) {}
  static constexpr AxisSet all() { return AxisSet((1u << std::size(kAxes)) - 1); }

  constexpr bool has(Axis axis) const { return (bits_ & AxisSet(axis).bits_) != 0; }
  /// Some of kExpertAxes, not of kAxes.
  constexpr bool of_experts() const { return has(Axis::ep) || has(Axis::edp); }
  constexpr std::span<const AxisRow> rows() const {
    return of_experts() ? std::span<const AxisRow>(kExpertAxes) : kAxes;
  }
  /// The other axes of the same grid.
  constexpr AxisSet others() const {
    AxisSet rest;
    for (const AxisRow& row : rows())
      if (!has(row.axis)) rest = AxisSet(rest.bits_ | AxisSet(row.axis).bits_);
    return rest;
  }
  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return AxisSet(a.bits_ | b.bits_); }
  auto operator<=>(const AxisSet&) const = default;

 private:
  constexpr explicit AxisSet(unsigned bits) : bits_(bits) {}
  unsigned bits_ = 0;
};
constexpr AxisSet operator|(Axis a, Axis b) { return AxisSet(a) | AxisSet(b); }

/// Ranks with the same part of the model: gradients are summed over them.
inline constexpr AxisSet kReplicas = Axis::cp | Axis::dp;
/// Ranks that have one whole model together: tp neighbours, stage after stage.
inline constexpr AxisSet kModel = Axis::tp | Axis::pp;
/// Ranks that have one whole model together, and the same tokens.
inline constexpr AxisSet kTeam = kModel | Axis::cp;

/// Groups that exchange tensors. Each has links of its own, also where two have the same ranks: what goes
/// over one may be under way while another one is used.
inline constexpr AxisSet kTensorGroups[] = {Axis::tp, Axis::cp, kReplicas, Axis::pp, Axis::ep, Axis::edp};
/// Groups that agree on what they do.
inline constexpr AxisSet kControlGroups[] = {Axis::dp, Axis::pp, kModel, kTeam, AxisSet::all()};

/// A value for each axis.
template <class Value>
struct PerAxis {
  std::array<Value, kNumAxes> of{};
  constexpr Value& operator[](Axis axis) { return of[static_cast<size_t>(axis)]; }
  constexpr const Value& operator[](Axis axis) const { return of[static_cast<size_t>(axis)]; }
  bool operator==(const PerAxis&) const = default;
};

/// Ranks along each axis. A rank's number is its place among the ranks of the role, in ascending order.
class Grid {
 public:
  Grid() { along_.of.fill(1), along_[Axis::ep] = 0; }
  struct Along {
    Axis axis;
    int ranks;
  };
  /// Axes that are not named have one rank.
  Grid(std::initializer_list<Along> along);

  int along(Axis axis) const;
  /// Axis::ep divides the ranks of a stage, and where it is not set it is tp; Axis::edp follows.
  void set(Axis axis, int ranks) { along_[axis] = ranks; }
  /// Its ranks share a model with experts: Axis::ep is set.
  bool has_experts() const { return along_[Axis::ep] > 0; }
  /// Where experts are cut as the rest of a layer is, their groups are those of tp and of kReplicas.
  bool cuts_experts_apart() const { return along(Axis::ep) != along(Axis::tp); }
  /// Those of these axes along which there is more than one rank.
  AxisSet wide(AxisSet axes) const;
  /// The ranks of a group over these axes.
  int size(AxisSet axes = AxisSet::all()) const;
  /// The place of a number in its group over these axes.
  int at(int number, AxisSet axes) const;
  /// Which of the groups over these axes a number is in: 0 to size(axes.others()) - 1.
  int group_of(int number, AxisSet axes) const { return at(number, axes.others()); }
  /// The number with this place along each axis.
  int number(const PerAxis<int>& place) const;
  /// How far apart the numbers of a group can be, the first and the last one counted.
  int span(AxisSet axes) const;
  /// The numbers that differ from this one along these axes alone, itself among them, ascending.
  std::vector<int> group(int number, AxisSet axes) const;
  bool operator==(const Grid&) const = default;

 private:
  PerAxis<int> along_;  // 0 along ep: as tp
};

}  // namespace temper
