// Which names belong to which scope, by the rules of Jinja2's compiler (see hide_names).
#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "src/core/check.h"
#include "src/data/jinja/ast.h"

namespace temper::jinja {
namespace {

/// Looking up names takes their number times the nesting squared; real templates need some thousand steps.
class Budget {
 public:
  explicit Budget(const std::string& source) : source_(source) {}
  void spend() {
    if (++spent_ > kMax)
      fail_syntax(source_, {}, fmt::format("too many names in blocks too deep ({} look-ups)", kMax));
  }

 private:
  static constexpr int64_t kMax = 10'000'000;
  const std::string& source_;
  int64_t spent_ = 0;
};

enum class Load : uint8_t { parameter, from_context, from_outside, undefined };

/// Names of one scope. A branch of an `if` is looked at in a layer over its scope and merged afterwards.
class Scope {
 public:
  Scope(const Scope* outside, Budget& budget) : outside_(outside), budget_(budget) {}
  static Scope layer_over(const Scope& base) {
    Scope layer(base.outside_, base.budget_);
    layer.base_ = &base;
    return layer;
  }

  Budget& budget() const { return budget_; }
  void declare(std::string_view name) {
    stores_.insert(name);
    loads_[name] = Load::parameter;
  }
  void load(std::string_view name) {
    if (!is_known(name)) loads_[name] = Load::from_context;
  }
  void store(std::string_view name) {
    stores_.insert(name);
    if (!has(name)) loads_[name] = known_outside(name) ? Load::from_outside : Load::undefined;
  }
  /// What only some branches store keeps its meaning from outside until then.
  void merge(std::initializer_list<const Scope*> branches) {
    std::unordered_set<std::string_view> stored;
    for (const Scope* branch : branches)
      for (const auto name : branch->stores_)
        if (!is_stored(name)) stored.insert(name);
    for (const Scope* branch : branches) {
      for (const auto& [name, kind] : branch->loads_) loads_[name] = kind;
      stores_.insert(branch->stores_.begin(), branch->stores_.end());
    }
    for (const auto name : stored)
      loads_[name] = known_outside(name) ? Load::from_outside : Load::from_context;
  }
  std::vector<std::string> hidden() const {
    std::vector<std::string> names;
    for (const auto& [name, kind] : loads_)
      if (kind == Load::undefined) names.emplace_back(name);
    return names;
  }

 private:
  bool has(std::string_view name) const {
    for (const Scope* scope = this; scope; scope = scope->base_, budget_.spend())
      if (scope->loads_.contains(name)) return true;
    return false;
  }
  bool is_stored(std::string_view name) const {
    for (const Scope* scope = this; scope; scope = scope->base_, budget_.spend())
      if (scope->stores_.contains(name)) return true;
    return false;
  }
  bool known_outside(std::string_view name) const {
    for (const Scope* scope = outside_; scope; scope = scope->outside_)
      if (scope->has(name)) return true;
    return false;
  }
  bool is_known(std::string_view name) const { return has(name) || known_outside(name); }

  const Scope* outside_;
  const Scope* base_ = nullptr;
  Budget& budget_;
  std::unordered_map<std::string_view, Load> loads_;
  std::unordered_set<std::string_view> stores_;
};

void visit_reads(Scope& scope, const Expr* expr) {
  if (!expr) return;
  if (expr->kind == ExprKind::name) scope.load(expr->text);
  for (const auto& item : expr->items) visit_reads(scope, item.get());
}

void visit_target(Scope& scope, const Expr& target, bool parameter) {
  if (target.kind == ExprKind::attribute) return scope.load(target.items[0]->text);
  if (target.kind == ExprKind::name) return parameter ? scope.declare(target.text) : scope.store(target.text);
  for (const auto& item : target.items) visit_target(scope, *item, parameter);
}

void visit_block(Scope& scope, const Block& block);

void visit_branches(Scope& scope, const Stmt& stmt) {
  visit_reads(scope, stmt.branches.front().condition.get());
  Scope first = Scope::layer_over(scope);
  visit_block(first, stmt.branches.front().body);
  Scope middle = Scope::layer_over(scope);
  for (size_t i = 1; i < stmt.branches.size(); ++i) {
    visit_reads(middle, stmt.branches[i].condition.get());
    Scope body = Scope::layer_over(middle);
    visit_block(body, stmt.branches[i].body);
    middle.merge({&body});
  }
  Scope last = Scope::layer_over(scope);
  visit_block(last, stmt.otherwise);
  scope.merge({&first, &middle, &last});
}

/// What a block does to the names of its own scope; scopes inside are only touched where they begin.
void visit_block(Scope& scope, const Block& block) {
  for (const Stmt& stmt : block) {
    switch (stmt.kind) {
      case StmtKind::print:
      case StmtKind::filter_block:
        visit_reads(scope, stmt.value.get());
        break;
      case StmtKind::set:
        visit_reads(scope, stmt.value.get());
        visit_target(scope, *stmt.target, false);
        break;
      case StmtKind::set_block:
        visit_target(scope, *stmt.target, false);
        break;
      case StmtKind::branch:
        visit_branches(scope, stmt);
        break;
      case StmtKind::loop:
      case StmtKind::call_block:
        visit_reads(scope, stmt.value.get());
        break;
      case StmtKind::macro:
        scope.store(stmt.text);
        break;
      case StmtKind::with:
        for (const auto& value : stmt.defaults) visit_reads(scope, value.get());
        break;
      default:
        break;
    }
  }
}

void analyze_inside(const Scope& scope, Block& block);

/// A scope inside `outside`, with the names it starts with; returns what it hides.
std::vector<std::string> analyze(Scope scope, Block& block) {
  visit_block(scope, block);
  analyze_inside(scope, block);
  return scope.hidden();
}

void analyze_statement(const Scope& outside, Stmt& stmt) {
  Scope scope{&outside, outside.budget()};
  if (stmt.kind == StmtKind::loop) {
    stmt.hidden_otherwise = analyze(scope, stmt.otherwise);
    scope.declare("loop");
    visit_target(scope, *stmt.target, true);
  }
  for (const auto& name : stmt.parameters) scope.declare(name);
  if (stmt.kind == StmtKind::macro || stmt.kind == StmtKind::call_block)
    for (const auto& value : stmt.defaults) visit_reads(scope, value.get());
  stmt.hidden = analyze(std::move(scope), stmt.body);
}

void analyze_inside(const Scope& scope, Block& block) {
  for (Stmt& stmt : block) {
    for (Branch& branch : stmt.branches) analyze_inside(scope, branch.body);
    if (stmt.kind == StmtKind::branch) {
      analyze_inside(scope, stmt.otherwise);
    } else if (!stmt.body.empty() || !stmt.otherwise.empty()) {
      analyze_statement(scope, stmt);
    }
  }
}

}  // namespace

void hide_names(Program& program, const std::string& source) {
  Budget budget(source);
  Scope scope(nullptr, budget);
  visit_block(scope, program.body);
  analyze_inside(scope, program.body);
  program.hidden = scope.hidden();
}

}  // namespace temper::jinja
