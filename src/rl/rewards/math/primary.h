#pragma once
// The smallest parts of answers: numbers, names, functions, groups, matrices.

#include "src/rl/rewards/math/cursor.h"
#include "src/rl/rewards/math/relations.h"

namespace temper {

class MathParser;

class MathPrimary {
 public:
  /// `parser`: of what stands in brackets, or behind a function.
  MathPrimary(MathCursor& cursor, SumAlgebra& algebra, MathGroups& groups, MathParser& parser)
      : c_(cursor), algebra_(algebra), groups_(groups), parser_(parser) {}
  Sum primary();

 private:
  class Level;

  Sum number();
  std::optional<Sum> mixed_part();
  Sum letters();
  Sum subscripted(std::string name);
  Sum command();
  Sum root();
  Sum function();
  Sum braces();
  Sum bars();
  Sum group();
  Sum builder(const Sum& element);
  Sum matrix();

  MathCursor& c_;
  SumAlgebra& algebra_;
  MathGroups& groups_;
  MathParser& parser_;
  int64_t level_ = 0;
};

}  // namespace temper
