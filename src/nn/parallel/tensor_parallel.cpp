#include "src/nn/parallel/tensor_parallel.h"

#include "src/ops/elementwise.h"
#include "src/ops/rows.h"

namespace temper {
namespace {

Tensor flat(const CTensor& t) { return make_tensor(const_cast<void*>(t.data), t.dtype, {t.size()}); }

/// Columns [at, at + width of `part`) of `whole`.
void copy_out(Ctx& c, const Tensor& part, const CTensor& whole, int64_t at) {
  copy_columns(c, part, 0, whole, at, part.dim(1));
}

FlatRange tokens_of(const Collectives& tp, int64_t tokens, int rank) {
  return token_share(tokens, rank, tp.size());
}

/// Elements of every rank's tokens, in rows of `width`.
std::vector<FlatRange> token_ranges(const Collectives& tp, int64_t tokens, int64_t width) {
  std::vector<FlatRange> ranges;
  for (int rank = 0; rank < tp.size(); ++rank) {
    const FlatRange own = tokens_of(tp, tokens, rank);
    ranges.push_back({own.begin * width, own.end * width});
  }
  return ranges;
}

/// Rows of one gradient that several ranks have: the sum over those, in rank order.
void sum_span(Ctx& c, Collectives& tp, const Tensor& rows, const RowSpan& span, const char* what) {
  ArenaScope scope(c.scratch);
  const Tensor all = c.scratch.make({tp.size(), rows.size()}, rows.dtype);
  tp.all_gather(c, all, flat(rows), what);
  sum_in_order(c, flat(rows), temper::rows(all, span.first_rank, span.first_rank + span.num_ranks));
}

/// of_chunks [chunks, ...]: those of every rank's share are copied to all ranks.
void gather_chunks(Ctx& c, Collectives& tp, const Tensor& of_chunks, int64_t vocabulary, const char* what) {
  const int64_t width = of_chunks.dim(1) * of_chunks.dim(2);
  const ParamSpec spec{
      .name = "vocabulary", .parts = {{"", vocabulary}}, .shape = {vocabulary}, .shard = Shard::vocabulary};
  std::vector<FlatRange> ranges;
  for (int rank = 0; rank < tp.size(); ++rank) {
    const RowSpan span = row_spans(spec, {rank, tp.size()}).front();
    ranges.push_back({num_chunks(span.whole) * width, num_chunks(span.whole + span.rows) * width});
  }
  tp.all_gather_ranges(c, flat(of_chunks), ranges, what);
}

}  // namespace

void gather_columns(Ctx& c, Collectives& tp, const Tensor& all, const CTensor& mine) {
  ArenaScope scope(c.scratch);
  const int64_t rows = mine.dim(0), width = mine.dim(1);
  const Tensor got = c.scratch.make({tp.size() * rows, width}, mine.dtype);
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < tp.size(); ++peer) {
    if (peer == tp.rank()) continue;
    out.push_back(parcel(peer, mine));
    in.push_back(parcel(peer, temper::rows(got, peer * rows, (peer + 1) * rows)));
  }
  tp.exchange_all(c, out, in, "output columns, copied from their tp owners");
  join_columns(c, all, got, mine, tp.rank());
}

Tensor own_columns(Ctx& c, const Collectives& tp, const CTensor& all) {
  const Tensor own = c.scratch.make({all.dim(0), all.dim(1) / tp.size()}, all.dtype);
  copy_out(c, own, all, tp.rank() * own.dim(1));
  return own;
}

void gather_tokens(Ctx& c, Collectives& tp, const Tensor& all, const CTensor& mine) {
  const int64_t tokens = all.dim(0);
  const FlatRange own = tokens_of(tp, tokens, tp.rank());
  device::copy(c.lane, rows(all, own.begin, own.end).raw(), mine.data, mine.bytes());
  tp.all_gather_ranges(c, flat(all), token_ranges(tp, tokens, all.dim(1)),
                       "rows of tokens, copied from their tp owners");
}

void columns_to_rows(Ctx& c, Collectives& tp, const Tensor& y, const CTensor& mine, const char* what) {
  ArenaScope scope(c.scratch);
  const int64_t own = y.dim(0), width = mine.dim(1);
  const Tensor got = c.scratch.make({tp.size() * own, width}, mine.dtype);
  const auto block_of = [&](int rank) {
    const FlatRange tokens = tokens_of(tp, mine.dim(0), rank);
    return rows(mine, tokens.begin, tokens.end);
  };
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < tp.size(); ++peer) {
    if (peer == tp.rank()) continue;
    out.push_back(parcel(peer, block_of(peer)));
    in.push_back(parcel(peer, rows(got, peer * own, (peer + 1) * own)));
  }
  tp.exchange_all(c, out, in, what);
  join_columns(c, y, got, block_of(tp.rank()), tp.rank());
}

void rows_to_columns(Ctx& c, Collectives& tp, const Tensor& mine, const CTensor& y, const char* what) {
  ArenaScope scope(c.scratch);
  const int64_t own = y.dim(0), width = mine.dim(1);
  const Tensor sent = c.scratch.make({tp.size() * own, width}, y.dtype);
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < tp.size(); ++peer) {
    const FlatRange theirs = tokens_of(tp, mine.dim(0), peer);
    const Tensor place = rows(mine, theirs.begin, theirs.end);
    const bool self = peer == tp.rank();
    const Tensor block = self ? place : rows(sent, peer * own, (peer + 1) * own);
    copy_out(c, block, y, peer * width);
    if (self) continue;
    out.push_back(parcel(peer, block));
    in.push_back(parcel(peer, place));
  }
  tp.exchange_all(c, out, in, what);
}

void sum_own_tokens(Ctx& c, Collectives& tp, const Tensor& sum, const CTensor& parts, const char* what) {
  tp.reduce_scatter_ranges(c, flat(sum), flat(parts), token_ranges(tp, parts.dim(0), parts.dim(1)), what);
}

void sum_parts(Ctx& c, Collectives& tp, const Tensor& sum, const CTensor& parts) {
  tp.all_reduce_sum_into(c, flat(sum), flat(parts), "gradient of an input, sum over tp");
}

/// x + (-0) is x for every x: the sum is a copy.
void copy_owned(Ctx& c, Collectives& tp, const Tensor& rows) {
  tp.all_reduce_sum(c, flat(rows), "rows of the embedding, copied from their tp owners");
}

void copy_own_tokens(Ctx& c, Collectives& tp, const Tensor& own, const CTensor& rows) {
  sum_own_tokens(c, tp, own, rows, "own tokens of the embedding, copied from their tp owners");
}

void gather_stats(Ctx& c, Collectives& tp, const Tensor& stats, const Tensor& logits, int64_t vocabulary) {
  gather_chunks(c, tp, stats, vocabulary, "statistics of the vocabulary, copied from their tp owners");
  tp.all_reduce_sum(c, logits, "logits of targets, copied from their tp owners");
}

void gather_samples(Ctx& c, Collectives& tp, const SampleChunks& chunks, int64_t vocabulary) {
  gather_chunks(c, tp, chunks.best, vocabulary, "best ids of the vocabulary, copied from their tp owners");
  if (!chunks.kept.empty())
    gather_chunks(c, tp, chunks.kept, vocabulary, "logits for filters, copied from their tp owners");
  if (!chunks.unedited.empty())
    gather_chunks(c, tp, chunks.unedited, vocabulary, "logits before edits, copied from their tp owners");
}

/// A parameter that every rank has whole: the columns of each follow one another in its memory.
void place_whole_gradient(Ctx& c, Collectives& tp, const Parameter& p) {
  ArenaScope scope(c.scratch);
  const Tensor own = c.scratch.make({p.grad.dim(0), p.grad.dim(1) / tp.size()}, p.grad.dtype);
  device::copy(c.lane, own.raw(), p.grad.data, own.bytes());
  gather_columns(c, tp, p.grad, own);
}

void place_gradient(Ctx& c, Collectives& tp, const Parameter& p) {
  if (p.spec.shard == Shard::none) return place_whole_gradient(c, tp, p);
  ArenaScope scope(c.scratch);
  const int64_t outputs = p.grad.dim(0) * tp.size();  // none of what another stage has
  const Tensor columns = c.scratch.make({outputs, p.grad.dim(1) / tp.size()}, p.grad.dtype);
  device::copy(c.lane, columns.raw(), p.grad.data, p.grad.bytes());
  columns_to_rows(c, tp, p.grad, columns, "gradients of columns, copied to the tp owners of their rows");
}

void complete_gradients(Ctx& c, Collectives& tp, ParameterStore& parameters, const Unit& unit) {
  for (Parameter& p : parameters.list()) {
    if (p.offset < unit.range.begin || p.offset >= unit.range.end || !p.has_grad()) continue;
    if (p.spec.grad_by_columns) place_gradient(c, tp, p);
    const bool heads = p.spec.shard == Shard::rows;
    for (const RowSpan& span : p.spans)
      if (span.num_ranks > 1 && (heads || p.spec.partial_grad))
        sum_span(c, tp, rows(p.grad, span.own, span.own + span.rows), span,
                 "gradients of shared parameters, copied for their sum over tp");
  }
}

}  // namespace temper
