#pragma once
// One pair of layouts under test: a model as a run of such a config has it, whose rollout generates and whose
// trainer then computes the log-probs of the same tokens. The two are to be the same bits.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/run/host/model_pool.h"
#include "src/run/session/placement.h"
#include "src/run/verbs/bits/layout_pairs.h"

namespace temper {

/// What is checked on.
struct BitsModel {
  std::string folder;
  std::string device, dtype;
  int threads = 1;
  uint64_t seed = 0;  // of prompts and sampling
  std::vector<std::string> allow_unused = {};
};

struct BitsFound {
  std::string layouts;
  int64_t tokens = 0;            // whose two log-probs were compared
  int64_t differing_tokens = 0;  // of them
  int64_t differing_bits = 0;    // of the log-probs as 64-bit numbers
  double max_difference = 0;     // of two log-probs
};

/// The config of a run on this pair: prompts of 1 to some 1,100 tokens, of which a part is in the batch.
LoadedConfig bits_config(const BitsModel& model, const LayoutPair& pair, const ModelConfig& shape);

class BitsPair {
 public:
  /// Every rank of the world calls it and what follows, in this order. The model is loaded, and the rollout
  /// has its weights from the trainer. A layout that the model or the ranks do not allow is Exit::usage.
  BitsPair(const BitsModel& model, const LayoutPair& pair, const MpiSession& mpi, Comm& world, Device device,
           double wait_limit);

  /// The rollout's part: prompts of random ids and, with a tokenizer, of text, sampled at two temperatures.
  void generate();
  /// The trainer's part, in large micro-batches and in the smallest ones. The same on all ranks.
  BitsFound compare();
  /// What the trainer computes with.
  Model& trained() { return *trained_; }

 private:
  std::vector<Request> requests() const;
  std::vector<Group> gather(const std::vector<Group>& mine);

  BitsModel of_;
  std::string text_;
  LoadedConfig loaded_;
  RunPlan plan_;
  RunTask task_;
  Comm& world_;
  Placement placement_;
  Meshes meshes_;
  std::unique_ptr<Mailbox> mailbox_;
  EndOfRun end_;
  WeightSync weights_;
  ModelHost host_;
  MemoryLedger memory_{0};
  ModelPool models_;
  Model *trained_, *generating_;
  std::vector<std::vector<Group>> groups_;  // of each way to sample
};

}  // namespace temper
