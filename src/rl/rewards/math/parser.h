#pragma once
// The grammar of answers, read by recursive descent into sums (sum.h):
//   list    = item {("," | ";" | "or") item}          item   = side {relation side}
//   side    = sum {(\cup | \cap | \setminus) sum}     sum    = [sign] product {sign product}
//   product = factor {[\cdot | /] factor}             factor = primary {^ exponent | ! | _ base}
// Structures (tuples, sets, matrices, functions of an argument ...) become atoms by the text of their parts.
// Whatever is not understood, or ambiguous (`1/2x` is (1/2)x, but a/bx is neither), throws NoValue.

#include <vector>

#include "src/rl/rewards/math/primary.h"

namespace temper {

struct MathList {
  std::vector<MathItem> items;
  bool choice = false;  // "or" stands in it
};

class MathParser {
 public:
  /// `plus`: \pm is + and \mp is -, or the other way round.
  MathParser(const MathTokens& tokens, bool plus)
      : c_(tokens), plus_(plus), relations_(algebra_, groups_), primary_(c_, algebra_, groups_, *this) {}
  MathParser(const MathParser&) = delete;
  MathParser& operator=(const MathParser&) = delete;

  MathList whole();
  const MathGroups& groups() const { return groups_; }

  // The parts that stand in brackets, or behind a function.
  MathList list();
  MathItem item();
  Sum sum();
  Sum factor();
  Sum exponent();
  bool starts_factor() const;

 private:
  Sum side();
  Sum product();
  Sum postfix(Sum base);

  MathCursor c_;
  bool plus_;
  SumAlgebra algebra_;
  MathGroups groups_;
  MathRelations relations_;
  MathPrimary primary_;
};

}  // namespace temper
