#include "src/rollout/page_index.h"

#include <algorithm>

#include "src/core/check.h"

namespace temper {
namespace {

int64_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

PageIndex::Found PageIndex::find(std::span<const int32_t> tokens) const {
  Found found;
  while (std::ssize(tokens) - found.tokens >= page_tokens_) {
    const auto ids = tokens.subspan(static_cast<size_t>(found.tokens), static_cast<size_t>(page_tokens_));
    const auto at = by_ids_.find({found.noted.last, {ids.begin(), ids.end()}});
    if (at == by_ids_.end()) break;
    found.pages.push_back(at->second);
    found.tokens += page_tokens_;
    found.noted = noted_until(found.noted.pages + 1, at->second);
  }
  // The page behind it with most of the ids that follow is a neighbour in the order of ids.
  const auto rest = tokens.subspan(static_cast<size_t>(found.tokens));
  const auto next = by_ids_.lower_bound({found.noted.last, {rest.begin(), rest.end()}});
  int64_t most = 0;
  int32_t page = -1;
  const auto look = [&](auto at) {
    if (at->first.first != found.noted.last) return;
    if (const int64_t rows = common(rest, at->first.second); rows > most) most = rows, page = at->second;
  };
  if (next != by_ids_.end()) look(next);
  if (next != by_ids_.begin()) look(std::prev(next));
  if (page >= 0) found.pages.push_back(page);
  found.tokens += most;
  return found;
}

void PageIndex::note(std::span<const int32_t> tokens, std::span<const int32_t> pages, int64_t rows,
                     bool ended, Noted& noted) {
  const auto ids = [&](int64_t page, int64_t count) {
    return tokens.subspan(static_cast<size_t>(page * page_tokens_), static_cast<size_t>(count));
  };
  if (noted.last >= 0 && entry(noted.last).serial != noted.serial) return;
  while ((noted.pages + 1) * page_tokens_ <= rows)
    noted = noted_until(noted.pages + 1, know(noted.last, ids(noted.pages, page_tokens_),
                                              pages[static_cast<size_t>(noted.pages)]));
  if (const int64_t left = rows - noted.pages * page_tokens_; ended && left > 0)
    know(noted.last, ids(noted.pages, left), pages[static_cast<size_t>(noted.pages)]);
}

int32_t PageIndex::know(int32_t before, std::span<const int32_t> ids, int32_t page) {
  Entry& e = entry(page);
  if (e.known) return page;
  const auto [at, fresh] = by_ids_.try_emplace({before, {ids.begin(), ids.end()}}, page);
  if (fresh) e = {.known = true, .idle = false, .serial = ++serials_, .at = at, .in_idle = {}};
  return at->second;
}

Noted PageIndex::noted_until(int64_t pages, int32_t last) const {
  return {.pages = pages, .last = last, .serial = entry(last).serial};
}

void PageIndex::let_go(int32_t page) {
  Entry& e = entry(page);
  CHECK(e.known && !e.idle, "page {} is let go twice", page);
  e.idle = true;
  e.in_idle = idle_.insert(idle_.end(), page);
}

void PageIndex::take_up(int32_t page) {
  Entry& e = entry(page);
  CHECK(e.idle, "page {} is held already", page);
  idle_.erase(e.in_idle);
  e.idle = false;
}

void PageIndex::forget(int32_t page, std::vector<int32_t>& freed) {
  std::vector<int32_t> open{page};
  while (!open.empty()) {
    const int32_t now = open.back();
    open.pop_back();
    for (auto at = by_ids_.lower_bound({now, {}}); at != by_ids_.end() && at->first.first == now; ++at)
      open.push_back(at->second);
    Entry& e = entry(now);
    by_ids_.erase(e.at);
    if (e.idle) {
      idle_.erase(e.in_idle);
      freed.push_back(now);
    }
    e = {};
  }
}

std::vector<int32_t> PageIndex::unlearn(int32_t page) {
  CHECK(knows(page) && !entry(page).idle, "page {} is not held or not known", page);
  std::vector<int32_t> freed;
  forget(page, freed);
  return freed;
}

std::vector<int32_t> PageIndex::drop_oldest() {
  std::vector<int32_t> freed;
  if (!idle_.empty()) forget(idle_.front(), freed);
  return freed;
}

std::vector<int32_t> PageIndex::clear() {
  std::vector<int32_t> freed(idle_.begin(), idle_.end());
  by_ids_.clear();
  idle_.clear();
  std::fill(entries_.begin(), entries_.end(), Entry{});
  return freed;
}

}  // namespace temper
