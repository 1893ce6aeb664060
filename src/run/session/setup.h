#pragma once
// What verbs need before they do anything: threads, dtype, models, tokenizers, chat templates.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/data/chat_template.h"
#include "src/data/tokenizer/tokenizer.h"
#include "src/models/model.h"

namespace temper {

/// Threads of this rank: `wanted`, or the cores of its affinity mask; ranks that share unbound cores divide
/// them.
int resolve_threads(std::optional<int64_t> wanted, int ranks_on_node);

/// "auto" is a GPU where one is found. A GPU is selected for this process: the ranks of a node take turns.
/// "cuda" without one is Exit::environment, saying why.
Device resolve_device(const std::string& device, int rank_on_node);
/// "auto" is fp32 on the CPU backend and bf16 on a GPU, which has no fp64 (Exit::usage).
DType resolve_dtype(const std::string& dtype, Device device);

/// Reads config.json and (unless `random`) the weights. `context_tokens`: rope tables go up to here; absent:
/// from config.json. Warnings of the folder are logged.
std::unique_ptr<Model> load_model(const std::string& path, DType dtype, std::optional<int64_t> context_tokens,
                                  bool with_gradients, bool random, uint64_t seed,
                                  Device device = Device::cpu);

bool has_tokenizer(const std::string& folder);
/// `file` empty: the folder's own template, if it has one.
std::optional<ChatTemplate> load_chat_template(const std::string& folder, const std::string& file);

}  // namespace temper
