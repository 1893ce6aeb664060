// What the names in a template mean before it runs: filters and tests that do not exist, and what a macro
// takes beside its parameters because its body reads `caller`, `varargs` or `kwargs`.
#include <algorithm>

#include "src/core/check.h"
#include "src/data/jinja/ast.h"
#include "src/data/jinja/library.h"

namespace temper::jinja {
namespace {

/// Where an expression stands. Jinja2 looks filters up when it compiles a template, but for those that stand
/// right behind an `if` (`soft`; `and` and `or` of constants count). One that Jinja2 has and this program lacks
/// is refused there only if nothing decides whether it is reached (`inside` something that does).
struct Place {
  bool inside = false;
  bool soft = false;
};
constexpr Place kBehindIf{.inside = true, .soft = true};

class UnknownNames {
 public:
  explicit UnknownNames(const std::string& source) : source_(source) {}

  void visit(const Block& block, Place place) const {
    for (const Stmt& stmt : block) visit(stmt, place);
  }

 private:
  void visit(const Stmt& stmt, Place place) const {
    const bool own_frame = stmt.kind == StmtKind::set_block || stmt.kind == StmtKind::filter_block;
    const bool later = stmt.kind == StmtKind::loop || stmt.kind == StmtKind::macro;
    const Place inner{.inside = place.inside || later || stmt.kind == StmtKind::call_block};
    visit(stmt.value.get(), own_frame ? inner : place);
    visit(stmt.condition.get(), inner);
    for (const auto& value : stmt.defaults) visit(value.get(), stmt.kind == StmtKind::with ? place : inner);
    for (const Branch& branch : stmt.branches) {
      visit(branch.condition.get(), kBehindIf);
      visit(branch.body, kBehindIf);
    }
    visit(stmt.body, inner);
    visit(stmt.otherwise, stmt.kind == StmtKind::branch ? kBehindIf : inner);
  }

  void visit(const Expr* expr, Place place) const {
    if (!expr) return;
    const bool filter = expr->kind == ExprKind::filter && !expr->filter;
    if (filter || (expr->kind == ExprKind::test && !expr->test)) {
      const bool known = filter ? is_jinja_filter(expr->text) : is_jinja_test(expr->text);
      if (!(known ? place.inside : place.soft))
        fail_syntax(source_, expr->at,
                    fmt::format("the {} `{}` is not supported", filter ? "filter" : "test", expr->text));
    }
    if (expr->kind == ExprKind::conditional || expr->kind == ExprKind::logical_and ||
        expr->kind == ExprKind::logical_or)
      place = kBehindIf;
    for (const auto& item : expr->items) visit(item.get(), place);
  }

  const std::string& source_;
};

constexpr std::string_view kSpecials[] = {"caller", "kwargs", "varargs"};

/// Which of the special names a block reads before it sets them, in the order in which Jinja2 looks through
/// it (of an assignment the target comes first).
class SpecialReads {
 public:
  SpecialReads(const std::string& source, int64_t& visits) : source_(source), visits_(visits) {}

  void visit(const Block& block) {
    for (const Stmt& stmt : block) visit(stmt);
  }
  bool reads(size_t special) const { return read_[special]; }

 private:
  static constexpr int64_t kMaxVisits = 10'000'000;  // macros in macros are looked through again and again

  void note(std::string_view name, bool load) {
    const auto* place = std::find(std::begin(kSpecials), std::end(kSpecials), name);
    if (place == std::end(kSpecials)) return;
    const auto i = static_cast<size_t>(place - kSpecials);
    (load ? read_[i] : set_[i]) |= load ? !set_[i] : true;
  }

  void visit(const Expr* expr, bool load = true) {
    if (!expr || expr->kind == ExprKind::constant) return;
    if (++visits_ > kMaxVisits) fail_syntax(source_, expr->at, "too many macros inside each other");
    if (expr->kind == ExprKind::name) note(expr->text, load);
    if (!load && expr->kind == ExprKind::attribute) return;  // the namespace of a target
    for (const auto& item : expr->items) visit(item.get(), load);
  }

  void visit(const Stmt& stmt) {
    visit(stmt.target.get(), false);
    if (stmt.kind == StmtKind::filter_block) {
      visit(stmt.body);
      return visit(stmt.value.get());
    }
    visit(stmt.value.get());
    for (const auto& name : stmt.parameters) note(name, false);
    for (const auto& value : stmt.defaults) visit(value.get());
    for (const Branch& branch : stmt.branches) {
      visit(branch.condition.get());
      visit(branch.body);
    }
    visit(stmt.body);
    visit(stmt.otherwise);
    visit(stmt.condition.get());
  }

  const std::string& source_;
  int64_t& visits_;
  bool read_[3] = {}, set_[3] = {};
};

void find_specials(Stmt& macro, const std::string& source, int64_t& visits) {
  SpecialReads body(source, visits);
  body.visit(macro.body);
  const auto& names = macro.parameters;
  const auto takes = [&](size_t special) {
    if (!body.reads(special)) return false;
    const auto parameter = std::find(names.begin(), names.end(), kSpecials[special]);
    if (parameter == names.end()) return true;
    if (special == 0 && !macro.defaults[static_cast<size_t>(parameter - names.begin())])
      fail_syntax(source, macro.at, "a parameter `caller` needs a default");
    return false;
  };
  macro.takes_caller = takes(0);
  macro.takes_kwargs = takes(1);
  macro.takes_varargs = takes(2);
}

void find_specials(Block& block, const std::string& source, int64_t& visits) {
  for (Stmt& stmt : block) {
    if (stmt.kind == StmtKind::macro || stmt.kind == StmtKind::call_block)
      find_specials(stmt, source, visits);
    for (Branch& branch : stmt.branches) find_specials(branch.body, source, visits);
    find_specials(stmt.body, source, visits);
    find_specials(stmt.otherwise, source, visits);
  }
}

}  // namespace

void check_names(Program& program, const std::string& source) {
  UnknownNames(source).visit(program.body, {});
  int64_t visits = 0;
  find_specials(program.body, source, visits);
}

}  // namespace temper::jinja
