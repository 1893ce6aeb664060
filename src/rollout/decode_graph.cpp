#include "src/rollout/decode_graph.h"

#include <algorithm>
#include <bit>

namespace temper {
namespace {

/// Few sizes, small steps where a row is dear.
int64_t round_rows(int64_t rows) {
  for (int64_t size : {1, 2, 4, 8})
    if (rows <= size) return size;
  const int64_t step = rows <= 64 ? 8 : rows <= 256 ? 32 : 64;
  return (rows + step - 1) / step * step;
}

}  // namespace

struct DecodeGraphs::Bucket {
  int64_t rows, pages;
  std::vector<int32_t> numbers;    // tokens, positions, lengths [rows]; cu_seqlens [rows + 1]; page table
  std::vector<SampleRow> samples;  // [rows]
  int32_t* device_numbers;
  SampleRow* device_samples;
  int32_t* drawn;     // [2 * rows]: tokens, then log-probs (fp32)
  bool warm = false;  // ran once: workspaces and algorithms are there
  device::Graph graph;

  int64_t cu_at() const { return 3 * rows; }
  int64_t table_at() const { return 4 * rows + 1; }
};

DecodeGraphs::DecodeGraphs(const Model& model, const KvCache& cache, int64_t num_sampleable)
    : model_(model), cache_(cache), num_sampleable_(num_sampleable), memory_(Device::cuda) {}
DecodeGraphs::~DecodeGraphs() = default;

DecodeGraphs::Bucket& DecodeGraphs::bucket_for(std::span<const DecodeRow> rows) {
  size_t most = 1;
  for (const DecodeRow& row : rows) most = std::max(most, row.pages.size());
  constexpr int64_t kTokens = 1024;  // of a split of attention: the grid does not grow within it
  const int64_t step = std::max<int64_t>(1, kTokens / cache_.page_tokens());
  const Key key{round_rows(static_cast<int64_t>(rows.size())),
                (static_cast<int64_t>(most) + step - 1) / step * step};
  std::unique_ptr<Bucket>& b = buckets_[key];
  if (b) return *b;
  b = std::make_unique<Bucket>();
  b->rows = key.first;
  b->pages = key.second;
  b->numbers.resize(static_cast<size_t>(b->table_at() + b->rows * b->pages));
  b->samples.resize(static_cast<size_t>(b->rows));
  b->device_numbers =
      static_cast<int32_t*>(memory_.allocate(std::ssize(b->numbers) * int64_t{sizeof(int32_t)}));
  b->device_samples = static_cast<SampleRow*>(memory_.allocate(b->rows * int64_t{sizeof(SampleRow)}));
  b->drawn = static_cast<int32_t*>(memory_.allocate(2 * b->rows * int64_t{sizeof(int32_t)}));
  return *b;
}

void DecodeGraphs::fill(Bucket& b, std::span<const DecodeRow> rows) const {
  const auto n = static_cast<size_t>(b.rows);
  std::fill(b.numbers.begin() + b.table_at(), b.numbers.end(), cache_.scratch_page());
  for (size_t i = 0; i < n; ++i) {
    const bool real = i < rows.size();
    b.numbers[i] = real ? rows[i].token : 0;
    b.numbers[n + i] = real ? rows[i].position : 0;
    b.numbers[2 * n + i] = b.numbers[n + i] + 1;
    b.numbers[3 * n + i + 1] = static_cast<int32_t>(i + 1);
    b.samples[i] = rows[real ? i : 0].sample;
    if (real)
      std::copy(rows[i].pages.begin(), rows[i].pages.end(),
                b.numbers.begin() + b.table_at() + static_cast<int64_t>(i) * b.pages);
  }
}

void DecodeGraphs::launch(Ctx& c, const Bucket& b) const {
  const int32_t* at = b.device_numbers;
  const PagedKv kv =
      cache_.view(view_of(at + b.table_at(), {b.rows, b.pages}), view_of(at + 2 * b.rows, {b.rows}));
  const Batch batch{view_of(at, {b.rows}), view_of(at + b.rows, {b.rows}),
                    view_of(at + b.cu_at(), {b.rows + 1}), &kv};
  const Tensor hidden = model_.forward(c, batch, nullptr);
  const Sampled drawn{make_tensor(b.drawn, DType::i32, {b.rows}),
                      make_tensor(b.drawn + b.rows, DType::f32, {b.rows})};
  model_.head().sample_into(c, drawn, hidden, {b.samples, b.device_samples}, num_sampleable_);
}

DrawnTokens DecodeGraphs::run(Ctx& c, std::span<const DecodeRow> rows) {
  Bucket& b = bucket_for(rows);
  fill(b, rows);
  device::copy_to_device(c.device, b.device_numbers, b.numbers.data(),
                         std::ssize(b.numbers) * int64_t{sizeof(int32_t)});
  device::copy_to_device(c.device, b.device_samples, b.samples.data(), b.rows * int64_t{sizeof(SampleRow)});
  if (b.warm && !b.graph.recorded()) b.graph.record([&] { launch(c, b); });
  if (b.graph.recorded())
    b.graph.replay();
  else
    launch(c, b);
  b.warm = true;
  std::vector<int32_t> drawn(static_cast<size_t>(2 * b.rows));
  device::copy_from_device(c.device, drawn.data(), b.drawn, 2 * b.rows * int64_t{sizeof(int32_t)});
  DrawnTokens result;
  for (size_t i = 0; i < rows.size(); ++i) {
    result.tokens.push_back(drawn[i]);
    result.logprobs.push_back(std::bit_cast<float>(drawn[static_cast<size_t>(b.rows) + i]));
  }
  return result;
}

}  // namespace temper
