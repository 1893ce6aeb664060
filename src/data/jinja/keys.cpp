#include "src/data/jinja/keys.h"

#include <bit>
#include <cmath>
#include <functional>

#include "src/data/jinja/runtime.h"

namespace temper::jinja {
namespace {

constexpr size_t kFew = 16;
constexpr uint64_t kBigNumber = 1;

uint64_t mixed(uint64_t seed, uint64_t part) { return (seed ^ part) * 0x9E3779B97F4A7C15u + (seed >> 29); }

uint64_t hash_real(double x) {
  if (!(std::fabs(x) < 9.2e18)) return kBigNumber;  // also of integers beyond 64 bits
  if (x == std::trunc(x)) return mixed(2, static_cast<uint64_t>(static_cast<int64_t>(x)));
  return mixed(3, std::bit_cast<uint64_t>(x));
}

/// Equal for values that are equal, whatever their types.
uint64_t hash_of(Runtime& runtime, const Value& value) {
  runtime.work();
  if (const auto text = as_text(value)) {
    runtime.handle(text->size());
    return std::hash<std::string_view>()(*text);
  }
  if (const auto n = as_integer(value)) {
    const auto x = static_cast<double>(*n);
    return std::fabs(x) < 9.2e18 ? mixed(2, static_cast<uint64_t>(*n)) : kBigNumber;
  }
  if (const auto* x = std::get_if<double>(&value)) return hash_real(*x);
  if (is<BigInteger>(value)) return kBigNumber;
  if (auto* const* s = std::get_if<Sequence*>(&value)) {
    uint64_t hash = mixed(4, (*s)->items.size());
    if ((*s)->form == Form::tuple)
      for (const Value& item : (*s)->items) hash = mixed(hash, hash_of(runtime, item));
    return hash;
  }
  return mixed(value.index(), reinterpret_cast<uint64_t>(address_of(value)));
}

}  // namespace

size_t KeyPlaces::find(Runtime& runtime, const std::vector<std::pair<Value, Value>>& pairs,
                       const Value& key) {
  runtime.work();
  if (pairs.size() <= kFew) {
    const auto text = as_text(key);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto other = text ? as_text(pairs[i].first) : std::nullopt;
      if (other && other->size() != text->size()) continue;
      if (equals(runtime, pairs[i].first, key)) return i;
    }
    return kNone;
  }
  for (; seen_ < pairs.size(); ++seen_) places_.emplace(hash_of(runtime, pairs[seen_].first), seen_);
  size_t found = kNone;
  const auto [begin, end] = places_.equal_range(hash_of(runtime, key));
  for (auto place = begin; place != end; ++place)
    if (place->second < found && equals(runtime, pairs[place->second].first, key)) found = place->second;
  return found;
}

size_t NameTable::place(std::string_view name) const {
  if (!places_.empty()) {
    const auto at = places_.find(name);
    return at == places_.end() ? items_.size() : at->second;
  }
  size_t i = 0;
  while (i < items_.size() && items_[i].first != name) ++i;
  return i;
}

const Value* NameTable::find(std::string_view name) const {
  const size_t at = place(name);
  return at == items_.size() ? nullptr : &items_[at].second;
}

void NameTable::set(std::string_view name, const Value& value) {
  const size_t at = place(name);
  if (at < items_.size()) {
    items_[at].second = value;
    return;
  }
  items_.emplace_back(name, value);
  if (items_.size() <= kFew) return;
  if (places_.empty())
    for (size_t i = 0; i < kFew; ++i) places_.emplace(items_[i].first, i);
  places_.emplace(name, at);
}

void NameTable::clear() {
  items_.clear();
  if (!places_.empty()) places_.clear();
}

}  // namespace temper::jinja
