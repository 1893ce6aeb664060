#pragma once
// What metrics.jsonl holds, for `temper help metrics`.

#include <span>
#include <string_view>

namespace temper {

struct MetricDoc {
  std::string_view name;  // {a,b}: each of these; <x>: any word
  std::string_view help;
};
std::span<const MetricDoc> metric_docs();

/// Whether a key of metrics.jsonl is one of those that the name stands for.
bool describes(const MetricDoc& doc, std::string_view key);

}  // namespace temper
