#include "src/rollout/decode_graph.h"

#include <algorithm>
#include <optional>

#include "src/models/layer_pass.h"

namespace temper {
namespace {

/// Few sizes, small steps where a row is dear.
int64_t round_rows(int64_t rows) {
  for (int64_t size : {1, 2, 4, 8})
    if (rows <= size) return size;
  const int64_t step = rows <= 64 ? 8 : rows <= 256 ? 32 : 64;
  return (rows + step - 1) / step * step;
}

/// Powers of two times the 1,024 tokens of a split of attention: the grid does not grow within it.
int64_t round_pages(int64_t pages, int64_t page_tokens) {
  constexpr int64_t kTokens = 1024;
  int64_t size = std::max<int64_t>(1, kTokens / page_tokens);
  while (size < pages) size *= 2;
  return size;
}

}  // namespace

/// One block of inputs and one of outputs, each in pinned host memory and on the GPU.
struct DecodeGraphs::Bucket {
  /// `ids`: of experts, for each row.
  Bucket(const Key& key, int64_t ids, Arena& memory)
      : rows(key.rows),
        pages(key.pages),
        num_sampleable(key.num_sampleable),
        num_ids(ids * key.rows),
        host_in(device::make_pinned(in_bytes())),
        host_out(device::make_pinned(out_bytes())),
        in(static_cast<char*>(memory.allocate(in_bytes()))),
        out(static_cast<char*>(memory.allocate(out_bytes()))) {}

  int64_t rows, pages, num_sampleable, num_ids;
  device::PinnedMemory host_in, host_out;
  char *in, *out;
  bool warm = false;  // ran once: workspaces and algorithms are there
  device::Graph graph;

  // Inputs: SampleRow [rows], then i32 tokens, positions, lengths, tails, slots that are read, slots that are
  // written [rows each], cu_seqlens [rows + 1], table [rows, pages].
  int64_t sample_bytes() const { return rows * int64_t{sizeof(SampleRow)}; }
  int64_t num_numbers() const { return table_at() + rows * pages; }
  int64_t in_bytes() const { return sample_bytes() + num_numbers() * int64_t{sizeof(int32_t)}; }
  // Outputs: tokens, log-probs, ids of experts.
  int64_t drawn_bytes() const { return rows * int64_t{sizeof(int32_t) + sizeof(float)}; }
  int64_t out_bytes() const { return drawn_bytes() + num_ids * int64_t{sizeof(int32_t)}; }
  SampleRow* samples(char* block) const { return reinterpret_cast<SampleRow*>(block); }
  int32_t* numbers(char* block) const { return reinterpret_cast<int32_t*>(block + sample_bytes()); }
  int64_t ends_at() const { return 6 * rows; }
  int64_t table_at() const { return ends_at() + rows + 1; }
  CTensor list(const int32_t* numbers, int64_t number) const {
    return view_of(numbers + number * rows, {rows});
  }
};

bool DecodeGraphs::can_record(const Model& model) {
  const Splits& splits = model.splits();
  return model.device() == Device::cuda && !splits.ep_spans_teams() &&
         (!splits.shares() || splits.tp->can_record());
}

DecodeGraphs::DecodeGraphs(const Model& model, const KvCache& cache, Lane& lane, const RouteShape& routes)
    : model_(model),
      cache_(cache),
      lane_(lane),
      routes_(routes),
      scratch_(Device::cuda, MemoryUse::scratch),
      blocks_(Device::cuda) {}
DecodeGraphs::~DecodeGraphs() = default;

DecodeGraphs::Bucket& DecodeGraphs::bucket_for(std::span<const DecodeRow> rows, int64_t num_sampleable) {
  size_t most = 1;
  bool filters = false;
  for (const DecodeRow& row : rows) {
    most = std::max(most, row.pages.size());
    filters = filters || row.sample.options.filters();
  }
  const Key key{round_rows(std::ssize(rows)), round_pages(static_cast<int64_t>(most), cache_.page_tokens()),
                num_sampleable, filters};
  std::unique_ptr<Bucket>& b = buckets_[key];
  const int64_t ids = routes_.layers > 0 ? model_.config().num_layers * routes_.chosen : 0;
  if (!b) b = std::make_unique<Bucket>(key, ids, blocks_);
  return *b;
}

void DecodeGraphs::fill(const Bucket& b, std::span<const DecodeRow> rows) const {
  SampleRow* samples = b.samples(b.host_in.get());
  int32_t *tokens = b.numbers(b.host_in.get()), *positions = tokens + b.rows, *lengths = positions + b.rows,
          *tails = lengths + b.rows, *from = tails + b.rows, *to = from + b.rows,
          *ends = tokens + b.ends_at(), *table = tokens + b.table_at();
  const HeldState nobody{.tail = cache_.states() ? cache_.states()->scratch_tail() : -1};
  std::fill(table, table + b.rows * b.pages, cache_.scratch_page());
  ends[0] = 0;
  for (int64_t i = 0; i < b.rows; ++i) {
    const bool real = i < std::ssize(rows);
    const DecodeRow& row = rows[real ? static_cast<size_t>(i) : 0];
    samples[i] = row.sample;
    tokens[i] = row.token;
    positions[i] = real ? row.position : 0;
    lengths[i] = positions[i] + 1;
    const HeldState& state = real ? row.state : nobody;
    tails[i] = state.tail, from[i] = state.from, to[i] = state.slot;
    ends[i + 1] = static_cast<int32_t>(i + 1);
    if (real) std::copy(row.pages.begin(), row.pages.end(), table + i * b.pages);
  }
}

void DecodeGraphs::submit(const Bucket& b) {
  const ArenaScope scope(scratch_);
  Ctx c{.scratch = scratch_, .lane = lane_};
  device::copy_to_device(lane_, b.in, b.host_in.get(), b.in_bytes());
  const int32_t* at = b.numbers(b.in);
  const PagedKv kv = cache_.view(view_of(at + b.table_at(), {b.rows, b.pages}), b.list(at, 2));
  std::optional<DeltaPages> states;
  if (cache_.states())
    states = cache_.states()->view(b.list(at, 3), b.list(at, 4), b.list(at, 5), kv.lengths);
  RouterNotes notes;
  if (b.num_ids > 0)
    notes.chosen = make_tensor(b.out + b.drawn_bytes(), DType::i32,
                               {model_.config().num_layers, b.rows, routes_.chosen});
  const Batch batch{.tokens = b.list(at, 0),
                    .positions = b.list(at, 1),
                    .cu_seqlens = view_of(at + b.ends_at(), {b.rows + 1}),
                    .kv = &kv,
                    .states = states ? &*states : nullptr,
                    .routers = &notes};
  const Tensor hidden = forward_pass(c, model_, batch);
  const Sampled drawn{make_tensor(b.out, DType::i32, {b.rows}),
                      make_tensor(b.out + b.rows * int64_t{sizeof(int32_t)}, DType::f32, {b.rows})};
  const std::span<const SampleRow> list(b.samples(b.host_in.get()), static_cast<size_t>(b.rows));
  model_.head().sample_into(c, drawn, hidden, {list, b.samples(b.in)}, b.num_sampleable);
  device::copy_to_pinned(lane_, b.host_out.get(), b.out, b.out_bytes());
}

DrawnTokens DecodeGraphs::run(Ctx& c, std::span<const DecodeRow> rows, int64_t num_sampleable) {
  CHECK(&c.lane == &lane_, "generation on another lane than the one of the engine");
  scratch_.resume();
  Bucket& b = bucket_for(rows, num_sampleable);
  fill(b, rows);
  if (b.warm && !b.graph.recorded()) {
    b.graph.record(lane_, [&] { submit(b); });
    ++captures_;
  }
  if (b.graph.recorded())
    b.graph.replay(lane_);
  else
    submit(b);
  b.warm = true;
  lane_.wait();
  const auto* tokens = reinterpret_cast<const int32_t*>(b.host_out.get());
  const auto* logprobs = reinterpret_cast<const float*>(tokens + b.rows);
  chosen_ = {reinterpret_cast<const int32_t*>(logprobs + b.rows), static_cast<size_t>(b.num_ids)};
  return {{tokens, tokens + rows.size()}, {logprobs, logprobs + rows.size()}};
}

}  // namespace temper
