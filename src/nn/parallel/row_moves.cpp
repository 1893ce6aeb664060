#include "src/nn/parallel/row_moves.h"

#include <algorithm>

namespace temper {
namespace {

struct Holder {
  int number = 0;
  RowSpan span;
  bool has(int64_t row) const { return row >= span.whole && row < span.whole + span.rows; }
};

/// Who has rows of a part, with them, for each part.
std::vector<std::vector<Holder>> holders_of(const ParamSpec& spec, const Holders& holders) {
  std::vector<std::vector<Holder>> all(spec.parts.size());
  for (int number = 0; number < holders.grid.size(); ++number) {
    if (!spec.is_in(holders.stages[static_cast<size_t>(holders.grid.at(number, Axis::pp))])) continue;
    const std::vector<RowSpan> spans = row_spans(spec, holders.place(number));
    for (size_t part = 0; part < spans.size(); ++part) all[part].push_back({number, spans[part]});
  }
  return all;
}

/// The next row after `row` at which other holders begin or end, at most `end`.
int64_t next_border(const std::vector<Holder>& holders, int64_t row, int64_t end) {
  for (const Holder& h : holders)
    for (const int64_t border : {h.span.whole, h.span.whole + h.span.rows})
      if (border > row) end = std::min(end, border);
  return end;
}

}  // namespace

std::vector<RowMove> row_moves(const ParamSpec& spec, const Holders& holders, const ShardPlace& receiver,
                               int self) {
  std::vector<RowMove> moves;
  const std::vector<RowSpan> spans = row_spans(spec, receiver);
  const std::vector<std::vector<Holder>> holding = holders_of(spec, holders);
  for (size_t part = 0; part < spans.size(); ++part) {
    const RowSpan& mine = spans[part];
    const std::vector<Holder>& all = holding[part];
    const int64_t end = mine.whole + mine.rows;
    for (int64_t begin = mine.whole, next = 0; begin < end; begin = next) {
      next = next_border(all, begin, end);
      std::vector<Holder> having;
      for (const Holder& h : all)
        if (h.has(begin)) having.push_back(h);
      const auto own =
          std::find_if(having.begin(), having.end(), [&](const Holder& h) { return h.number == self; });
      if (own != having.end()) having = {*own};
      const int64_t rows = next - begin, givers = std::ssize(having);
      CHECK(givers > 0, "nobody has row {} of {}", begin, spec.name);
      for (int64_t i = 0; i < givers; ++i) {
        const int64_t at = begin + rows * i / givers, until = begin + rows * (i + 1) / givers;
        const Holder& h = having[static_cast<size_t>(i)];
        if (at < until)
          moves.push_back({h.number, at - h.span.whole + h.span.own, at - mine.whole + mine.own, until - at,
                           at, mine.first_rank == receiver.rank && !mine.copy});
      }
    }
  }
  return moves;
}

}  // namespace temper
