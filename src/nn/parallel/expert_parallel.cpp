#include "src/nn/parallel/expert_parallel.h"

#include <algorithm>

#include "src/ops/rows.h"

namespace temper {
namespace {

/// Tokens [begin, end) of every rank.
using TokenRanges = std::vector<FlatRange>;

int32_t rank_of(const ExpertChoices& c, int32_t expert) {
  return static_cast<int32_t>(expert * c.ranks() / c.num_experts);
}

/// Where lists with these numbers begin, one behind the other, from `at` on.
std::vector<int64_t> begins(const std::vector<int64_t>& counts, int64_t at = 0) {
  std::vector<int64_t> begin{at};
  for (const int64_t n : counts) begin.push_back(begin.back() + n);
  return begin;
}

int64_t most_tokens(const ExpertChoices& c) {
  int64_t most = 0;
  for (int rank = 0; rank < c.ranks(); ++rank) most = std::max(most, c.num_tokens(rank));
  return most;
}

/// Each rank's tokens in as many blocks as there are ranks: a window has all ranks' next ones, and as many as
/// no rank gets too many rows of; the rows of one block of each are never too many.
std::vector<TokenRanges> windows_of(const ExpertChoices& c) {
  const int blocks = c.ranks();
  const int64_t capacity = most_window_rows(most_tokens(c), c.per_token, c.ranks());
  std::vector<TokenRanges> windows;
  std::vector<int64_t> rows(static_cast<size_t>(c.ranks()), 0);
  for (int block = 0; block < blocks; ++block) {
    TokenRanges tokens;
    std::vector<int64_t> added(rows.size(), 0);
    for (int rank = 0; rank < c.ranks(); ++rank) {
      const FlatRange& own = tokens.emplace_back(token_share(c.num_tokens(rank), block, blocks));
      const std::vector<int32_t>& ids = c.ids[static_cast<size_t>(rank)];
      for (int64_t i = own.begin * c.per_token; i < own.end * c.per_token; ++i)
        ++added[static_cast<size_t>(rank_of(c, ids[static_cast<size_t>(i)]))];
    }
    bool fits = !windows.empty();
    for (size_t rank = 0; rank < rows.size(); ++rank) fits = fits && rows[rank] + added[rank] <= capacity;
    if (fits)
      for (size_t rank = 0; rank < tokens.size(); ++rank) windows.back()[rank].end = tokens[rank].end;
    else
      windows.push_back(tokens), std::fill(rows.begin(), rows.end(), 0);
    for (size_t rank = 0; rank < rows.size(); ++rank) rows[rank] += added[rank];
  }
  return windows;
}

/// What this rank sends of its tokens, and its rows by expert and token: `places` of these become known.
void list_own(const ExpertChoices& c, const FlatRange& tokens, ExpertWindow& w,
              std::vector<int32_t>& places) {
  const std::vector<int32_t>& ids = c.ids[static_cast<size_t>(c.rank)];
  const int64_t k = c.per_token;
  std::vector<std::vector<int32_t>> to(static_cast<size_t>(c.ranks()));
  std::vector<int64_t> of_expert(static_cast<size_t>(c.num_experts), 0), of_rank(to.size(), 0);
  for (int64_t t = tokens.begin; t < tokens.end; ++t)
    for (int64_t j = 0; j < k; ++j) {
      const int32_t expert = ids[static_cast<size_t>(t * k + j)];
      const auto rank = static_cast<size_t>(rank_of(c, expert));
      ++of_expert[static_cast<size_t>(expert)], ++of_rank[rank];
      if (to[rank].empty() || to[rank].back() != t) to[rank].push_back(static_cast<int32_t>(t));
    }
  std::vector<int64_t> sent;
  for (const std::vector<int32_t>& list : to) {
    sent.push_back(std::ssize(list));
    w.sent.insert(w.sent.end(), list.begin(), list.end());
  }
  w.sent_begin = begins(sent);
  w.first_choice = tokens.begin * k;
  w.choice_begin = begins(of_rank, w.first_choice);
  std::vector<int64_t> next = begins(of_expert);
  w.choices.resize(static_cast<size_t>(tokens.size() * k));
  for (int64_t i = tokens.begin * k; i < tokens.end * k; ++i) {
    const int64_t at = next[static_cast<size_t>(ids[static_cast<size_t>(i)])]++;
    w.choices[static_cast<size_t>(at)] = static_cast<int32_t>(i);
    places[static_cast<size_t>(i)] = static_cast<int32_t>(w.first_choice + at);
  }
}

/// What comes to this rank, and the rows of its experts. They lie by expert, rank, token, and go back by
/// rank, expert, token.
void list_rows(const ExpertChoices& c, const TokenRanges& tokens, ExpertWindow& w) {
  const int64_t own = c.num_experts / c.ranks(), first = own * c.rank, ranks = c.ranks(), k = c.per_token;
  std::vector<int64_t> count(static_cast<size_t>(own * ranks), 0);  // by expert, then rank
  const auto for_each = [&](auto&& see) {
    int64_t token = -1;  // among those that come
    for (int rank = 0; rank < ranks; ++rank) {
      const FlatRange& of_rank = tokens[static_cast<size_t>(rank)];
      const int32_t* const ids = c.ids[static_cast<size_t>(rank)].data();
      for (int64_t t = of_rank.begin; t < of_rank.end; ++t) {
        bool is_new = true;
        for (int64_t j = t * k; j < (t + 1) * k; ++j) {
          if (ids[j] < first || ids[j] >= first + own) continue;
          token += std::exchange(is_new, false);
          see(rank, ids[j] - first, token);
        }
      }
    }
  };
  std::vector<int64_t> got(static_cast<size_t>(ranks), 0), back(got);
  int64_t last = -1;
  for_each([&](int rank, int64_t expert, int64_t token) {
    ++count[static_cast<size_t>(expert * ranks + rank)], ++back[static_cast<size_t>(rank)];
    if (std::exchange(last, token) != token) ++got[static_cast<size_t>(rank)];
  });
  w.got_begin = begins(got), w.back_begin = begins(back);
  std::vector<int64_t> row = begins(count), going(count.size());
  for (int64_t e = 0; e <= own; ++e)
    w.offsets.push_back(static_cast<int32_t>(row[static_cast<size_t>(e * ranks)]));
  for (int rank = 0; rank < ranks; ++rank)
    for (int64_t e = 0, at = w.back_begin[static_cast<size_t>(rank)]; e < own; ++e) {
      going[static_cast<size_t>(e * ranks + rank)] = at;
      at += count[static_cast<size_t>(e * ranks + rank)];
    }
  w.tokens.resize(static_cast<size_t>(w.back_begin.back()));
  w.back.resize(w.tokens.size()), w.placed.resize(w.tokens.size());
  for_each([&](int rank, int64_t expert, int64_t token) {
    const auto of = static_cast<size_t>(expert * ranks + rank);
    const int64_t at = row[of]++, goes = going[of]++;
    w.tokens[static_cast<size_t>(at)] = static_cast<int32_t>(token);
    w.back[static_cast<size_t>(goes)] = static_cast<int32_t>(at);
    w.placed[static_cast<size_t>(at)] = static_cast<int32_t>(goes);
  });
}

/// The choices of all ranks, as every one of them gets them.
ExpertChoices gather_choices(Ctx& c, Collectives& ep, const CTensor& ids, int64_t num_experts) {
  const ArenaScope scope(c.scratch);
  ExpertChoices all{num_experts, ids.dim(1), ep.rank(), {}};
  const std::vector<int32_t> own{static_cast<int32_t>(ids.dim(0))};
  const Tensor numbers = c.scratch.make({ep.size(), 1}, DType::i32);
  ep.all_gather(c, numbers, index_tensor(c, own), "numbers of tokens, copied to all ranks of ep");
  std::vector<FlatRange> ranges;
  for (int64_t at = 0; const int32_t n : to_host<int32_t>(c, numbers)) {
    ranges.push_back({at, at + n * all.per_token});
    at = ranges.back().end;
  }
  const Tensor of_all = c.scratch.make({ranges.back().end}, DType::i32);
  const FlatRange& mine = ranges[static_cast<size_t>(ep.rank())];
  if (mine.size() > 0) device::copy(c.lane, rows(of_all, mine.begin, mine.end).raw(), ids.data, ids.bytes());
  if (of_all.size() > 0) ep.all_gather_ranges(c, of_all, ranges, "chosen experts, copied to all ranks of ep");
  const std::vector<int32_t> flat = to_host<int32_t>(c, of_all);
  for (const FlatRange& of : ranges) all.ids.emplace_back(flat.begin() + of.begin, flat.begin() + of.end);
  return all;
}

/// Where nothing is computed: as many tokens of each rank, as many rows as a window may have, and of those
/// that are sent and come back an even share.
ExpertRoutes fullest_routes(const CTensor& ids, int64_t num_experts, int ranks) {
  const int64_t tokens = ids.dim(0), k = ids.dim(1), rows = most_window_rows(tokens, k, ranks);
  double elsewhere = 1;  // share of the tokens that have no expert on a rank
  for (int64_t j = 0; j < k; ++j)
    elsewhere *=
        static_cast<double>(num_experts - num_experts / ranks - j) / static_cast<double>(num_experts - j);
  const auto sent = static_cast<int64_t>(static_cast<double>(tokens) * (1 - std::max(0.0, elsewhere)));
  const auto even = [&](int64_t all) {
    std::vector<int64_t> begin;
    for (int rank = 0; rank <= ranks; ++rank) begin.push_back(all * rank / ranks);
    return begin;
  };
  const auto zeros = [](int64_t n) { return std::vector<int32_t>(static_cast<size_t>(n), 0); };
  ExpertWindow w{.sent = zeros(sent * ranks),
                 .sent_begin = even(sent * ranks),
                 .got_begin = even(std::min(rows, tokens * ranks)),
                 .offsets = zeros(num_experts / ranks + 1),
                 .tokens = zeros(rows),
                 .back = zeros(rows),
                 .placed = zeros(rows),
                 .back_begin = even(rows),
                 .choices = zeros(tokens * k),
                 .choice_begin = even(tokens * k)};
  ExpertRoutes routes{.windows = {}, .places = zeros(tokens * k)};
  routes.windows.push_back(std::move(w));  // a list of one would be copied
  return routes;
}

}  // namespace

int64_t most_window_rows(int64_t most_tokens, int64_t per_token, int ranks) {
  constexpr int64_t kSlack = 8;  // an eighth more than an even share, so that one window is the rule
  return std::max(most_tokens + most_tokens / kSlack, most_tokens + ranks) * per_token;
}

ExpertRoutes route(const ExpertChoices& choices) {
  ExpertRoutes routes;
  routes.places.resize(choices.ids[static_cast<size_t>(choices.rank)].size());
  for (const TokenRanges& tokens : windows_of(choices)) {
    ExpertWindow& w = routes.windows.emplace_back();
    list_own(choices, tokens[static_cast<size_t>(choices.rank)], w, routes.places);
    list_rows(choices, tokens, w);
  }
  return routes;
}

CTensor index_tensor(Ctx& c, const std::vector<int32_t>& numbers) {
  return to_device(c, make_tensor(const_cast<int32_t*>(numbers.data()), DType::i32, {std::ssize(numbers)}));
}

ExpertExchange::ExpertExchange(Ctx& c, Collectives& ep, const CTensor& ids, int64_t num_experts)
    : ep_(ep),
      routes_(counts_only(c.device) ? fullest_routes(ids, num_experts, ep.size())
                                    : route(gather_choices(c, ep, ids, num_experts))) {}

/// Rows of `out`, from out_begin[r] on for rank r, and of `in`; own ones are copied.
void ExpertExchange::exchange(Ctx& c, const CTensor& out, const std::vector<int64_t>& out_begin,
                              const Tensor& in, const std::vector<int64_t>& in_begin,
                              const char* what) const {
  std::vector<Parcel> sent, got;
  for (int rank = 0; rank < ep_.size(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    const CTensor from = rows(out, out_begin[r] - out_begin.front(), out_begin[r + 1] - out_begin.front());
    const Tensor to = rows(in, in_begin[r], in_begin[r + 1]);
    if (rank == ep_.rank()) {
      if (from.bytes() > 0) device::copy(c.lane, to.raw(), from.data, from.bytes());
      continue;
    }
    if (from.bytes() > 0) sent.push_back(parcel(rank, from));
    if (to.bytes() > 0) got.push_back(parcel(rank, to));
  }
  ep_.exchange(c, sent, got, what);
}

Tensor ExpertExchange::tokens(Ctx& c, const ExpertWindow& w, const CTensor& x, const char* what) const {
  const Tensor come = c.scratch.make({w.num_tokens(), x.dim(1)}, x.dtype);
  const ArenaScope scope(c.scratch);
  const Tensor out = c.scratch.make({std::ssize(w.sent), x.dim(1)}, x.dtype);
  if (out.size() > 0) gather_rows(c, out, x, index_tensor(c, w.sent));
  exchange(c, out, w.sent_begin, come, w.got_begin, what);
  return come;
}

Tensor ExpertExchange::values(Ctx& c, const ExpertWindow& w, const CTensor& of_choices,
                              const char* what) const {
  const Tensor of_rows = c.scratch.make({w.num_rows(), 1}, of_choices.dtype);
  const ArenaScope scope(c.scratch);
  const Tensor all =
      make_tensor(const_cast<void*>(of_choices.data), of_choices.dtype, {of_choices.size(), 1});
  const Tensor out = c.scratch.make({std::ssize(w.choices), 1}, of_choices.dtype),
               come = c.scratch.like(of_rows);
  if (out.size() > 0) gather_rows(c, out, all, index_tensor(c, w.choices));
  exchange(c, out, w.choice_begin, come, w.back_begin, what);
  if (come.size() > 0) gather_rows(c, of_rows, come, index_tensor(c, w.placed));
  return of_rows;
}

void ExpertExchange::rows_back(Ctx& c, const ExpertWindow& w, const Tensor& all, const CTensor& of_rows,
                               const char* what) const {
  const ArenaScope scope(c.scratch);
  const Tensor out = c.scratch.make({w.num_rows(), of_rows.dim(1)}, of_rows.dtype);
  if (out.size() > 0) gather_rows(c, out, of_rows, index_tensor(c, w.back));
  exchange(c, out, w.back_begin, all, w.choice_begin, what);
}

}  // namespace temper
