#include "src/rollout/step_graphs.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "src/models/layer_pass.h"
#include "src/ops/rows.h"

namespace temper {
namespace {

/// Recorded steps take memory of the driver: those that prefill, in buckets that come later, are not
/// recorded.
constexpr int64_t kMostWithPrefill = 64;

/// Few sizes, small steps where a sequence is dear.
int64_t round_sequences(int64_t sequences) {
  for (int64_t size : {1, 2, 4, 8})
    if (sequences <= size) return size;
  const int64_t step = sequences <= 64 ? 8 : sequences <= 256 ? 32 : 64;
  return (sequences + step - 1) / step * step;
}

/// Powers of two, and one and a half of them: of steps that prefill there are buckets for each number of
/// rows.
int64_t round_beside_prefill(int64_t sequences) {
  for (int64_t size = 2;; size *= 2) {
    if (sequences <= size) return size;
    if (size >= 32 && sequences <= size / 2 * 3) return size / 2 * 3;
  }
}
int64_t eights(int64_t count) { return (count + 7) / 8 * 8; }
/// Rows of padding that are beyond one of each sequence belong to a sequence of padding. An engine that is
/// full, as it is in most steps, has a bucket that fits.
int64_t round_all(int64_t sequences, int64_t prefilled, int64_t most) {
  if (prefilled == 0) return round_sequences(sequences);
  return std::min(round_beside_prefill(sequences + 1), eights(std::max(most, sequences) + 1));
}
/// Rows beyond one of each sequence.
int64_t round_prefilled(int64_t rows) {
  int64_t size = 32;
  while (size < rows) size *= 2;
  return size;
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
struct StepGraphs::Bucket {
  /// `ids`: of experts, for each row.
  Bucket(const Key& k, int64_t ids, Arena& memory)
      : key(k),
        num_ids(ids * key.rows),
        host_in(device::make_pinned(in_bytes())),
        host_out(device::make_pinned(out_bytes())),
        in(static_cast<char*>(memory.allocate(in_bytes()))),
        out(static_cast<char*>(memory.allocate(out_bytes()))) {}

  Key key;
  int64_t num_ids;
  device::PinnedMemory host_in, host_out;
  char *in, *out;
  bool warm = false;  // ran once: workspaces and algorithms are there
  device::Graph graph;

  /// Inputs, behind a SampleRow for each draw.
  struct Numbers {
    int32_t *tokens, *positions;           // [rows]
    int32_t *lengths, *tails, *from, *to;  // [sequences]
    int32_t* drawn;                        // [draws]
    int32_t* cu_seqlens;                   // [sequences + 1]
    int32_t* table;                        // [sequences, pages]
  };
  Numbers numbers(char* block) const {
    auto* at = reinterpret_cast<int32_t*>(block + sample_bytes());
    const auto next = [&](int64_t count) { return std::exchange(at, at + count); };
    const auto [rows, n, pages] = std::tuple(key.rows, key.sequences, key.pages);
    return {next(rows), next(rows),      next(n),     next(n),        next(n),
            next(n),    next(key.draws), next(n + 1), next(n * pages)};
  }
  bool prefills() const { return key.rows > key.sequences; }
  SampleRow* samples(char* block) const { return reinterpret_cast<SampleRow*>(block); }
  int64_t sample_bytes() const { return key.draws * int64_t{sizeof(SampleRow)}; }
  int64_t in_bytes() const {
    const int64_t count = 2 * key.rows + (5 + key.pages) * key.sequences + 1 + key.draws;
    return sample_bytes() + count * int64_t{sizeof(int32_t)};
  }
  // Outputs: tokens, log-probs, ids of experts.
  int64_t drawn_bytes() const { return key.draws * int64_t{sizeof(int32_t) + sizeof(float)}; }
  int64_t out_bytes() const { return drawn_bytes() + num_ids * int64_t{sizeof(int32_t)}; }
};

int64_t StepGraphs::padded_rows(int64_t sequences, int64_t prefilled, int64_t most) {
  return round_all(sequences, prefilled, most) + (prefilled > 0 ? round_prefilled(prefilled) : 0);
}

bool StepGraphs::can_record(const Model& model) {
  const Splits& splits = model.splits();
  return model.device() == Device::cuda && !splits.ep_spans_teams() &&
         (!splits.shares() || splits.tp->can_record());
}

StepGraphs::StepGraphs(const Model& model, const KvCache& cache, Lane& lane, int64_t most_sequences,
                       const RouteShape& routes)
    : model_(model),
      cache_(cache),
      lane_(lane),
      most_sequences_(most_sequences),
      routes_(routes),
      scratch_(Device::cuda, MemoryUse::scratch),
      blocks_(Device::cuda) {}
StepGraphs::~StepGraphs() = default;

StepGraphs::Key StepGraphs::key_of(const StepLists& step, std::span<const StepDraw> draws,
                                   int64_t num_sampleable) const {
  const int64_t sequences = step.num_sequences(), prefilled = step.num_rows() - sequences;
  CHECK(prefilled <= kMostPrefilled && std::ssize(draws) <= sequences, "a step of {} rows of {}, {} draws",
        step.num_rows(), sequences, draws.size());
  const int64_t all = round_all(sequences, prefilled, most_sequences_);
  return {.rows = padded_rows(sequences, prefilled, most_sequences_),
          .sequences = all,
          .draws = std::min(all, eights(std::max(most_sequences_, sequences))),
          .pages = round_pages(step.num_pages(), cache_.page_tokens()),
          .num_sampleable = num_sampleable,
          .filters = std::any_of(draws.begin(), draws.end(),
                                 [](const StepDraw& draw) { return draw.sample.options.filters(); })};
}

StepGraphs::Bucket& StepGraphs::bucket_of(const Key& key) {
  std::unique_ptr<Bucket>& b = buckets_[key];
  const int64_t ids = routes_.layers > 0 ? model_.config().num_layers * routes_.chosen : 0;
  if (!b) b = std::make_unique<Bucket>(key, ids, blocks_);
  return *b;
}

void StepGraphs::fill(const Bucket& b, const StepLists& step, std::span<const StepDraw> draws) const {
  const Bucket::Numbers to = b.numbers(b.host_in.get());
  const int64_t real = step.num_sequences(), pages = step.num_pages(), size = b.key.sequences;
  const auto pad = [](const std::vector<int32_t>& list, int32_t* at, int64_t count, int32_t value) {
    std::fill(std::copy(list.begin(), list.end(), at), at + count, value);
  };
  pad(step.tokens, to.tokens, b.key.rows, step.tokens.front());
  pad(step.positions, to.positions, b.key.rows, 0);
  pad(step.tails, to.tails, size, cache_.states() ? cache_.states()->scratch_tail() : -1);
  pad(step.read_slots, to.from, size, -1);
  pad(step.written_slots, to.to, size, -1);
  std::copy(step.cu_seqlens.begin(), step.cu_seqlens.end(), to.cu_seqlens);
  std::copy(step.lengths.begin(), step.lengths.end(), to.lengths);
  for (int64_t i = real; i < size; ++i) {
    to.cu_seqlens[i + 1] = i + 1 < size ? to.cu_seqlens[i] + 1 : static_cast<int32_t>(b.key.rows);
    to.lengths[i] = to.cu_seqlens[i + 1] - to.cu_seqlens[i];
  }
  std::fill(to.table, to.table + size * b.key.pages, cache_.scratch_page());
  for (int64_t i = 0; i < real; ++i)
    std::copy_n(step.page_table.begin() + i * pages, pages, to.table + i * b.key.pages);
  for (int64_t i = 0; i < b.key.draws; ++i) {
    const StepDraw draw = i < std::ssize(draws) ? draws[static_cast<size_t>(i)] : StepDraw{};
    b.samples(b.host_in.get())[i] = draw.sample;
    to.drawn[i] = draw.row;
  }
}

void StepGraphs::submit(const Bucket& b) {
  const ArenaScope scope(scratch_);
  Ctx c{.scratch = scratch_, .lane = lane_};
  device::copy_to_device(lane_, b.in, b.host_in.get(), b.in_bytes());
  const Bucket::Numbers at = b.numbers(b.in);
  const int64_t rows = b.key.rows, n = b.key.sequences, draws = b.key.draws;
  const PagedKv kv = cache_.view(view_of(at.table, {n, b.key.pages}), view_of(at.lengths, {n}));
  std::optional<DeltaPages> states;
  if (cache_.states())
    states =
        cache_.states()->view(view_of(at.tails, {n}), view_of(at.from, {n}), view_of(at.to, {n}), kv.lengths);
  RouterNotes notes;
  if (b.num_ids > 0)
    notes.chosen =
        make_tensor(b.out + b.drawn_bytes(), DType::i32, {model_.config().num_layers, rows, routes_.chosen});
  const Batch batch{.tokens = view_of(at.tokens, {rows}),
                    .positions = view_of(at.positions, {rows}),
                    .cu_seqlens = view_of(at.cu_seqlens, {n + 1}),
                    .kv = &kv,
                    .states = states ? &*states : nullptr,
                    .routers = &notes};
  const Tensor hidden = forward_pass(c, model_, batch),
               chosen = c.scratch.make({draws, hidden.dim(1)}, hidden.dtype);
  gather_rows(c, chosen, hidden, view_of(at.drawn, {draws}));
  const Sampled drawn{make_tensor(b.out, DType::i32, {draws}),
                      make_tensor(b.out + draws * int64_t{sizeof(int32_t)}, DType::f32, {draws})};
  const std::span<const SampleRow> list(b.samples(b.host_in.get()), static_cast<size_t>(draws));
  model_.head().sample_into(c, drawn, chosen, {list, b.samples(b.in)}, b.key.num_sampleable);
  device::copy_to_pinned(lane_, b.host_out.get(), b.out, b.out_bytes());
}

DrawnTokens StepGraphs::run(Ctx& c, const StepLists& step, std::span<const StepDraw> draws,
                            int64_t num_sampleable) {
  CHECK(&c.lane == &lane_, "generation on another lane than the one of the engine");
  scratch_.resume();
  Bucket& b = bucket_of(key_of(step, draws, num_sampleable));
  fill(b, step, draws);
  if (b.warm && !b.graph.recorded() && (!b.prefills() || captures_with_prefill_ < kMostWithPrefill)) {
    b.graph.record(lane_, [&] { submit(b); });
    ++captures_;
    if (b.prefills()) ++captures_with_prefill_;
  }
  if (b.graph.recorded())
    b.graph.replay(lane_);
  else
    submit(b);
  b.warm = true;
  lane_.wait();
  const auto* tokens = reinterpret_cast<const int32_t*>(b.host_out.get());
  const auto* logprobs = reinterpret_cast<const float*>(tokens + b.key.draws);
  chosen_ = {reinterpret_cast<const int32_t*>(logprobs + b.key.draws), static_cast<size_t>(b.num_ids)};
  return {{tokens, tokens + draws.size()}, {logprobs, logprobs + draws.size()}};
}

}  // namespace temper
