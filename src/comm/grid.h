#pragma once
// The ranks of a role as a grid with named axes, and the named groups of ranks in it. Pure numbers: the plan
// and the meshes of a run ask the same type. An axis is a row of kAxes, a group a row of kGroups.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <vector>

namespace temper {

/// What sends most is next to each other: number = tp_i + tp (cp_i + cp (dp_i + dp pp_i)).
enum class Axis : uint8_t { tp, cp, dp, pp };

struct AxisRow {
  Axis axis;
  const char* name;
  bool within_layers;  // ranks exchange in every layer: they belong on one node
};
inline constexpr AxisRow kAxes[] = {
    {Axis::tp, "tp", true}, {Axis::cp, "cp", true}, {Axis::dp, "dp", false}, {Axis::pp, "pp", false}};
inline constexpr size_t kNumAxes = std::size(kAxes);

/// Some of the axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(1u << static_cast<unsigned>(axis)) {}
  static constexpr AxisSet all() { return AxisSet((1u << kNumAxes) - 1); }

  constexpr bool has(Axis axis) const { return (bits_ & AxisSet(axis).bits_) != 0; }
  constexpr AxisSet others() const { return AxisSet(all().bits_ & ~bits_); }
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
inline constexpr AxisSet kTensorGroups[] = {Axis::tp, Axis::cp, kReplicas, Axis::pp};
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
  Grid() { along_.of.fill(1); }
  struct Along {
    Axis axis;
    int ranks;
  };
  /// Axes that are not named have one rank.
  Grid(std::initializer_list<Along> along);

  int along(Axis axis) const { return along_[axis]; }
  void set(Axis axis, int ranks) { along_[axis] = ranks; }
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
  PerAxis<int> along_;
};

}  // namespace temper
