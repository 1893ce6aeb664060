#pragma once
// Which pages of the cache hold the keys and values of which beginnings of sequences, so that a later request
// that begins alike takes them instead of prefilling again: turns of a session, forks, the samples of a
// group, clients with one system prompt. A page is known by the page before it and by its own ids; nothing is
// taken on trust of a digest. Pages that no sequence holds any more stay until others need the room, those
// that were let go first, first.

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace temper {

/// How far the pages of a sequence are in the index already.
struct Noted {
  int64_t pages = 0;  // whole ones
  int32_t last = -1;  // the known page with the ids of the last of them; -1: none
  uint64_t serial =
      0;  // of what was known of it then: it may be another sequence's, and hold other ids later
};

class PageIndex {
 public:
  PageIndex(int64_t page_tokens, int64_t num_pages)
      : page_tokens_(page_tokens), entries_(static_cast<size_t>(num_pages)) {}

  struct Found {
    std::vector<int32_t> pages;
    int64_t tokens = 0;  // in them; of the last page perhaps a part
    Noted noted;
  };
  /// The longest known beginning of `tokens`.
  Found find(std::span<const int32_t> tokens) const;
  /// `pages` hold the first `rows` of `tokens`. Whole pages get known where their ids were not; the last one,
  /// which may still grow, where `ended`. Nothing, once the page before is forgotten.
  void note(std::span<const int32_t> tokens, std::span<const int32_t> pages, int64_t rows, bool ended,
            Noted& noted);

  bool knows(int32_t page) const { return entry(page).known; }
  /// No sequence holds the known page any more, or one holds it again.
  void let_go(int32_t page);
  void take_up(int32_t page);
  int64_t num_idle() const { return static_cast<int64_t>(idle_.size()); }
  /// Forgets a page that a sequence holds, and what is known behind it: pages that are free now.
  std::vector<int32_t> unlearn(int32_t page);
  /// Forgets the page that was let go first, and what is known behind it: pages that are free now.
  std::vector<int32_t> drop_oldest();
  /// Forgets all: the idle pages are free now. (The weights have changed.)
  std::vector<int32_t> clear();

 private:
  using Key = std::pair<int32_t, std::vector<int32_t>>;  // the page before, -1: none; the ids
  struct Entry {
    bool known = false, idle = false;
    uint64_t serial = 0;
    std::map<Key, int32_t>::iterator at;
    std::list<int32_t>::iterator in_idle;
  };
  Entry& entry(int32_t page) { return entries_[static_cast<size_t>(page)]; }
  const Entry& entry(int32_t page) const { return entries_[static_cast<size_t>(page)]; }
  /// The page that is known for the key: `page`, where none was.
  int32_t know(int32_t before, std::span<const int32_t> ids, int32_t page);
  Noted noted_until(int64_t pages, int32_t last) const;
  void forget(int32_t page, std::vector<int32_t>& freed);

  int64_t page_tokens_;
  uint64_t serials_ = 0;
  std::map<Key, int32_t> by_ids_;
  std::vector<Entry> entries_;  // by page
  std::list<int32_t> idle_;     // the one that was let go first in front
};

}  // namespace temper
