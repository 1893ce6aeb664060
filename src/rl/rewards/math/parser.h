#pragma once
// The grammar of answers, read by recursive descent into sums (sum.h):
//   list    = item {("," | ";" | "or") item}          item   = side {relation side}
//   side    = sum {(\cup | \cap | \setminus) sum}     sum    = [sign] product {sign product}
//   product = factor {[\cdot | /] factor}             factor = primary {^ exponent | ! | _ base}
// Structures (tuples, sets, matrices, functions of an argument ...) become atoms by the text of their parts.
// Whatever is not understood, or ambiguous (`1/2x` is (1/2)x, but a/bx is neither), throws NoValue.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/rl/rewards/math/sum.h"
#include "src/rl/rewards/math/tokens.h"

namespace temper {

class MathParser {
 public:
  struct Item {
    Sum sum;
    std::string name;  // of the variable it is the value of, may be empty
  };
  struct List {
    std::vector<Item> items;
    bool choice = false;  // "or" stands in it
  };
  /// `plus`: \pm is + and \mp is -, or the other way round.
  MathParser(const MathTokens& tokens, bool plus) : tokens_(tokens), plus_(plus) {}

  List whole();
  /// The elements when `sum` is a set that was read, in order of their keys.
  const std::vector<Sum>* set_elements(const Sum& sum) const;

 private:
  class Level;
  struct Group {
    std::string open;
    std::vector<Sum> parts;
  };

  bool done() const { return at_ >= tokens_.size(); }
  bool is(std::string_view token, size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && tokens_[at_ + ahead] == token;
  }
  bool is_number(size_t ahead = 0) const;
  bool is_letter_at(size_t ahead = 0) const;
  bool skip(std::string_view token);
  void need(std::string_view token);
  std::string take();

  List list();
  Item item();
  Item equality(const std::vector<Sum>& sides, const std::vector<std::string>& relations);
  Sum inequality(std::vector<Sum> sides, std::vector<std::string> relations, std::string& name);
  Sum equation(const Sum& left, const Sum& right);
  std::optional<std::string> variable(const Sum& sum) const;
  Sum side();
  Sum sum();
  Sum product();
  bool starts_factor() const;
  Sum factor();
  Sum postfix(Sum base);
  Sum exponent();
  Sum primary();
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
  Sum make_group(std::string open, std::vector<Sum> parts, const std::string& close);

  const MathTokens& tokens_;
  bool plus_;
  size_t at_ = 0;
  int64_t level_ = 0, bars_ = 0, sets_ = 0;
  SumAlgebra algebra_;
  std::map<std::string, Group> groups_;  // by atom
};

}  // namespace temper
