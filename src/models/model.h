#pragma once
// A decoder as steps: begin (embedding), layer by layer, end (final norm). The order of the steps is
// LayerPass's (models/layer_pass.h). A model may hold a range of the layers, or several (parts): the
// first range of all has the embedding, the last one the final norm and the head. It ends in hidden states;
// heads (log-prob now) are beside it. It knows neither loss nor sampling nor who else has the model.

#include <map>
#include <memory>
#include <vector>

#include "src/nn/decoder_layer.h"
#include "src/nn/logprob_head.h"
#include "src/nn/model_config.h"
#include "src/nn/parallel/unit_gather.h"
#include "src/nn/parameter.h"

namespace temper {

/// Layers [begin, end) of all of a model.
struct LayerRange {
  int64_t begin = 0, end = 0;
  bool operator==(const LayerRange&) const = default;
};
/// Parts of a model, ascending.
using LayerRanges = std::vector<LayerRange>;
int64_t num_layers(const LayerRanges& parts);
/// The first range has the embedding, the last one final norm and head.
UnitSet units_of(const LayerRanges& parts, int64_t num_layers);

struct ModelOptions {
  DType dtype = DType::f32;
  int64_t context_tokens = 0;  // rope tables have the positions below
  bool with_gradients = false;
  Device device = Device::cpu;
  LayerRanges layers = {};  // empty: all
  Splits splits = {};
  UnitShards unit_shards = {};
};

/// Why no kernel of this device can run this shape; empty: they can.
std::string shape_defect(const ModelConfig& config, Device device);
/// Exit::data naming `source` for a shape with a defect.
void check_supported(const ModelConfig& config, const std::string& source, Device device = Device::cpu);

class Model {
 public:
  /// Allocates parameters (zeroed) and rope tables.
  Model(const ModelConfig& config, const ModelOptions& options);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const LayerRanges& parts() const { return parts_; }
  /// The layers of a model with one part.
  const LayerRange& layers() const {
    CHECK(parts_.size() == 1, "a model with {} parts is taken as one", parts_.size());
    return parts_.front();
  }
  bool is_first() const { return parts_.front().begin == 0; }
  bool is_last() const { return parts_.back().end == config_.num_layers; }

  /// The steps of a pass, each of which reads units that are here (see `gather`).
  /// The residual stream [stream_rows, D] before the first layer; kept for backward (in c.saved) or not.
  Residual begin(Ctx& c, const Batch& b, bool keep) const;
  const DecoderLayer& layer(int64_t number) const { return decoder_.at(number); }
  /// Final hidden states [T, D].
  Tensor end(Ctx& c, const Batch& b, const Residual& x, NormSaved* saved) const;
  /// Rows of the stream that are here of T: its own tokens where tensor parallel neighbours share them.
  int64_t stream_rows(const StreamRows& all) const { return options_.splits.own_tokens(all).size(); }

  /// dx [T, D] overwritten; weight gradients accumulate.
  void end_backward(Ctx& c, const Batch& b, const Tensor& dx, const CTensor& dhidden,
                    const NormSaved& saved) const;
  void begin_backward(Ctx& c, const Batch& b, const CTensor& dx) const;

  /// Where the parameters of a step are: for what works unit by unit.
  UnitGroup embedding_units() const { return parameters_.group(0); }
  UnitGroup layer_units(int64_t layer) const { return parameters_.group(layer + 1); }
  UnitGroup head_units() const { return parameters_.group(config_.num_layers + 1); }
  /// What a step reads is here. Who has nothing to do in it does this all the same, where others have shards
  /// of the weights (ZeRO-3).
  void gather(Ctx& c, UnitGroup units) const;
  /// The units that come next, in this order: each is on its way while the one before it is worked with.
  void expect_gathers(std::vector<UnitGroup> units) const;

  /// Passes from here on are those of the base, or of base and adapters.
  void use_adapters(bool on) { uses_adapters_ = on; }
  bool uses_adapters() const { return uses_adapters_; }

  const Splits& splits() const { return options_.splits; }
  /// A pass with tokens is one of all that have blocks of the same experts, who may have none.
  bool passes_together() const { return options_.splits.ep_spans_batches; }
  /// What parameters() are of the whole model's.
  ShardPlace place() const;
  /// The head is the embedding of another range of layers: a copy of it.
  bool has_tied_copy() const { return config_.tie_word_embeddings && is_last() && !is_first(); }
  const LogprobHead& head() const { return *head_; }
  ParameterStore& parameters() { return parameters_; }
  const ParameterStore& parameters() const { return parameters_; }
  const ModelConfig& config() const { return config_; }
  DType dtype() const { return options_.dtype; }
  Device device() const { return options_.device; }
  int64_t context_tokens() const { return options_.context_tokens; }
  int64_t table_bytes() const { return tables_.peak_bytes(); }
  int64_t held_bytes() const { return parameters_.held_bytes() + tables_.held_bytes(); }

 private:
  /// Tensor parallel neighbours have their own tokens of the stream.
  bool shares(const Batch& b) const { return options_.splits.shares(b.stream()); }
  void make_parameters();
  void make_layers();
  Norm make_norm(const std::string& name);
  Mixer make_mixer(int64_t layer, int64_t number);
  FeedForward make_feed_forward(int64_t layer);
  Mlp make_mlp(const std::string& prefix);
  Adapter adapter_of(const std::string& weight);
  void make_rope();
  VocabularyShare embedding_share() const;
  Parameter* find(const std::string& name);
  Parameter& get(const std::string& name);

  ModelConfig config_;
  ModelOptions options_;
  LayerRanges parts_;
  bool uses_adapters_ = true;
  ParameterStore parameters_;
  std::unique_ptr<UnitGather> gather_;  // where there are owners of shards
  Arena tables_;
  RopeTensors rope_;
  Parameter* embedding_ = nullptr;
  std::map<int64_t, DecoderLayer> decoder_;
  std::unique_ptr<Norm> norm_;
  std::unique_ptr<LogprobHead> head_;
};

}  // namespace temper
