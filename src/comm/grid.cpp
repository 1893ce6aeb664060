#include "src/comm/grid.h"

namespace temper {

Grid::Grid(std::initializer_list<Along> along) : Grid() {
  for (const Along& a : along) set(a.axis, a.ranks);
}

int Grid::along(Axis axis) const {
  const int ep = along_[Axis::ep] > 0 ? along_[Axis::ep] : along_[Axis::tp];
  if (axis == Axis::ep) return ep;
  if (axis == Axis::edp) return along_[Axis::tp] * along_[Axis::cp] * along_[Axis::dp] / ep;
  return along_[axis];
}

int Grid::size(AxisSet axes) const {
  int ranks = 1;
  for (const AxisRow& row : axes.rows())
    if (axes.has(row.axis)) ranks *= along(row.axis);
  return ranks;
}

AxisSet Grid::wide(AxisSet axes) const {
  AxisSet wide;
  for (const AxisRow& row : axes.rows())
    if (axes.has(row.axis) && along(row.axis) > 1) wide = wide | row.axis;
  return wide;
}

int Grid::number(const PerAxis<int>& place) const {
  int number = 0, stride = 1;
  for (const AxisRow& row : kAxes) {
    number += place[row.axis] * stride;
    stride *= along(row.axis);
  }
  return number;
}

int Grid::span(AxisSet axes) const {
  int span = 1, stride = 1;
  for (const AxisRow& row : axes.rows()) {
    stride *= along(row.axis);
    if (axes.has(row.axis)) span = stride;
  }
  return span;
}

int Grid::at(int number, AxisSet axes) const {
  int place = 0, stride = 1;
  for (const AxisRow& row : axes.rows()) {
    if (axes.has(row.axis)) {
      place += number % along(row.axis) * stride;
      stride *= along(row.axis);
    }
    number /= along(row.axis);
  }
  return place;
}

std::vector<int> Grid::group(int number, AxisSet axes) const {
  std::vector<int> numbers;
  for (int other = 0; other < size(); ++other)
    if (group_of(other, axes) == group_of(number, axes)) numbers.push_back(other);
  return numbers;
}

}  // namespace temper
