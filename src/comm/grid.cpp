#include "src/comm/grid.h"

namespace temper {

Grid::Grid(std::initializer_list<Along> along) : Grid() {
  for (const Along& a : along) set(a.axis, a.ranks);
}

int Grid::size(AxisSet axes) const {
  int ranks = 1;
  for (const auto& [axis, name] : kAxes)
    if (axes.has(axis)) ranks *= along(axis);
  return ranks;
}

int Grid::at(int number, AxisSet axes) const {
  int place = 0, stride = 1;
  for (const auto& [axis, name] : kAxes) {
    if (axes.has(axis)) {
      place += number % along(axis) * stride;
      stride *= along(axis);
    }
    number /= along(axis);
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
