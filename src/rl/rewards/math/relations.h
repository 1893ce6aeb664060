#pragma once
// Structures that are compared whole, as atoms (tuples, sets, intervals), and what relations between sums
// are: a value with the name of its variable, an equation, an interval.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/rl/rewards/math/sum.h"

namespace temper {

struct MathItem {
  Sum sum;
  std::string name;  // of the variable it is the value of, may be empty
};

/// An atom by the text of its parts.
Sum joined_atom(const std::string& name, const std::vector<Sum>& parts);

class MathGroups {
 public:
  Sum make(std::string open, std::vector<Sum> parts, const std::string& close);
  /// The elements when `sum` is a set that was made, in order of their keys.
  const std::vector<Sum>* set_elements(const Sum& sum) const;
  /// What may stand before `=` as a name: a letter, a word, f(x), a tuple of them, AB; its text without an
  /// index.
  std::optional<std::string> variable(const Sum& sum) const;

 private:
  struct Group {
    std::string open;
    std::vector<Sum> parts;
  };
  std::map<std::string, Group> groups_;  // by atom
};

class MathRelations {
 public:
  MathRelations(SumAlgebra& algebra, MathGroups& groups) : algebra_(algebra), groups_(groups) {}
  /// Two sides or more, with a relation between neighbours.
  MathItem item(std::vector<Sum> sides, std::vector<std::string> relations);

 private:
  MathItem equality(const std::vector<Sum>& sides, const std::vector<std::string>& relations);
  MathItem inequality(std::vector<Sum> sides, std::vector<std::string> relations);
  Sum equation(const Sum& left, const Sum& right);

  SumAlgebra& algebra_;
  MathGroups& groups_;
};

}  // namespace temper
