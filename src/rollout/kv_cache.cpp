#include "src/rollout/kv_cache.h"

#include "src/nn/attention.h"
#include "src/rollout/pool_entries.h"

namespace temper {
namespace {

int64_t attention_layers(const ModelConfig& config, const LayerRanges& parts) {
  int64_t layers = 0;
  for (const LayerRange& part : parts)
    for (int64_t i = part.begin; i < part.end; ++i) layers += config.delta.layers.contains(i) ? 0 : 1;
  return layers;
}

}  // namespace

KvShape::KvShape(const Model& model)
    : KvShape(model.config(), model.parts(), model.splits().tp_ranks(), model.dtype()) {}

KvShape::KvShape(const ModelConfig& config, const LayerRanges& parts, int tp_ranks, DType type)
    : KvShape(attention_layers(config, parts), attention_shape(config, tp_ranks).kv_width(), type) {}

KvCache::KvCache(const KvShape& shape, int64_t num_pages, int64_t page_tokens, bool poison, Lane& lane)
    : lane_(lane), page_tokens_(page_tokens), poison_(poison), memory_(lane.device(), MemoryUse::cache) {
  const int64_t width = shape.width * page_tokens;
  const int64_t pages = num_pages + (like_gpu(lane.device()) ? 1 : 0);  // and the scratch page
  keys_ = memory_.zeros({shape.layers, pages, width}, shape.storage);
  values_ = memory_.zeros({shape.layers, pages, width}, shape.storage);
  references_.assign(static_cast<size_t>(num_pages), 0);
  for (int64_t p = num_pages; p-- > 0;) free_.push_back(static_cast<int32_t>(p));
  if (poison_)
    for (int32_t p : free_) poison_page(p);
}

int32_t KvCache::take() {
  if (free_.empty() && index_)
    for (const int32_t page : index_->drop_oldest()) free(page);
  CHECK(!free_.empty(), "no free page of {}", num_pages());
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvCache::retain(int32_t page) {
  CHECK(references_[static_cast<size_t>(page)] > 0, "page {} is free", page);
  ++references_[static_cast<size_t>(page)];
}

void KvCache::release(int32_t page) {
  int32_t& count = references_[static_cast<size_t>(page)];
  CHECK(count > 0, "page {} is free already", page);
  if (--count > 0) return;
  if (index_ && index_->knows(page))
    index_->let_go(page);
  else
    free(page);
}

void KvCache::free(int32_t page) {
  if (poison_) poison_page(page);
  free_.push_back(page);
}

PageIndex::Found KvCache::find(std::span<const int32_t> tokens) {
  if (!index_) return {};
  PageIndex::Found found = index_->find(tokens);
  for (const int32_t page : found.pages)
    if (references_[static_cast<size_t>(page)]++ == 0) index_->take_up(page);
  return found;
}

bool KvCache::unlearn(int32_t page) {
  if (!index_ || !index_->knows(page) || references_[static_cast<size_t>(page)] > 1) return false;
  for (const int32_t freed : index_->unlearn(page)) free(freed);
  return true;
}

void KvCache::forget() {
  if (!index_) return;
  for (const int32_t page : index_->clear()) free(page);
}

int32_t KvCache::copy(int32_t page) {
  const int32_t own = take();
  for (const Tensor& pool : {keys_, values_}) copy_entry(lane_, pool, own, page);
  release(page);
  return own;
}

PagedKv KvCache::view(CTensor page_table, CTensor lengths) const {
  return {keys_, values_, page_table, lengths, page_tokens_};
}

void KvCache::poison_page(int32_t page) const {
  for (const Tensor& pool : {keys_, values_}) poison_entry(lane_, pool, page);
}

}  // namespace temper
