#pragma once
// A dense decoder: embedding, layers, final norm. It ends in hidden states; heads (log-prob now) are beside
// it. It knows neither loss nor sampling nor other ranks.

#include <memory>
#include <vector>

#include "src/nn/decoder_layer.h"
#include "src/nn/logprob_head.h"
#include "src/nn/model_config.h"
#include "src/nn/parameter.h"

namespace temper {

struct ModelSaved {
  std::vector<LayerSaved> layers;
  NormSaved norm;
};

/// Exit::data naming `source` when no kernel can run this shape.
void check_supported(const ModelConfig& config, const std::string& source);

class Model {
 public:
  /// Allocates parameters (zeroed) and rope tables for positions below `context_tokens`.
  Model(const ModelConfig& config, DType storage, int64_t context_tokens, bool with_gradients,
        Device device = Device::cpu);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Final hidden states [T, D], from the arena. With `saved`, activations stay in the arena for backward;
  /// without it only one layer's are alive at a time.
  Tensor forward(Ctx& c, const Batch& b, ModelSaved* saved) const;
  /// Adds to all gradients (but the head's).
  void backward(Ctx& c, const Batch& b, CTensor dhidden, const ModelSaved& saved) const;

  const LogprobHead& head() const { return *head_; }
  ParameterStore& parameters() { return parameters_; }
  const ParameterStore& parameters() const { return parameters_; }
  const ModelConfig& config() const { return config_; }
  DType dtype() const { return storage_; }
  Device device() const { return tables_.device(); }
  int64_t context_tokens() const { return context_tokens_; }

 private:
  void make_rope();

  ModelConfig config_;
  DType storage_;
  int64_t context_tokens_;
  ParameterStore parameters_;
  Arena tables_;
  RopeTensors rope_;
  Parameter* embedding_ = nullptr;
  std::vector<DecoderLayer> layers_;
  std::unique_ptr<Norm> norm_;
  std::unique_ptr<LogprobHead> head_;
};

}  // namespace temper
