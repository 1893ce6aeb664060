#pragma once
// From one way of sharing a model to another: which rows of a parameter a rank gets from which holder. A pure
// function of the shapes, the same on every rank.

#include <vector>

#include "src/comm/grid.h"
#include "src/nn/parameter.h"

namespace temper {

/// Ranks that hold a model: by number, as their grid says.
struct Holders {
  Grid grid;
  std::vector<UnitSet> stages = {{}};

  ShardPlace place(int number) const {
    return {grid.at(number, Axis::tp), grid.along(Axis::tp),
            stages[static_cast<size_t>(grid.at(number, Axis::pp))], grid.at(number, Axis::ep),
            grid.along(Axis::ep)};
  }
};

/// Rows that go from one holder to the receiver.
struct RowMove {
  int holder = 0;                      // number
  int64_t from = 0, to = 0, rows = 0;  // first row of what the holder has, of what the receiver has
  int64_t whole = 0;                   // the first row of all
  bool first = true;                   // no tensor parallel rank before the receiver has them
};

/// All rows of the receiver's place, each once, ascending by row of the receiver. Holders of the same rows
/// give even shares of them, so that a model leaves over all of their links at once. `self`: the receiver's
/// own number among the holders, which gives what it has; -1: it is none of them.
std::vector<RowMove> row_moves(const ParamSpec& spec, const Holders& holders, const ShardPlace& receiver,
                               int self);

}  // namespace temper
