#pragma once
// The loss of SFT on held-out responses, without generation. Each file of validation.data is a set:
//
//   val/<set>/loss = -(sum of log p over all response tokens) / their number     [nats a token]
//   val/<set>/ppl  = exp(loss)
//
// The log-probs are those of training, with its temperature. Every rank adds them up in double in the order
// of the file: the bits depend neither on layout nor on packing. With rewards, which validation
// generates for, a set may lack responses: one whose first line has none has no loss.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/nn/parallel/pipeline.h"
#include "src/run/groups/prompt_stream.h"
#include "src/run/plan/plan.h"
#include "src/train/token_pass.h"

namespace temper {

class HeldOutLoss {
 public:
  struct Parts {
    const Config& config;
    const RunPlan& plan;
    Ctx& ctx;
    const Model& model;
    Comm& all;  // ranks that hold some of the model: they make every call alike
    Comm& dp;   // those among them that share the lines
    PassOptions pass;
    Pipeline pipeline;
    const Tokenizer& tokenizer;
    const ChatTemplate* chat;
    std::function<bool()> stops;  // asked between lines: nobody waits for the rest
  };
  /// Reads all sets. Exit::data for a line without a response, and for a set of which nothing is left.
  explicit HeldOutLoss(const Parts& parts);
  /// What the files of the sets held, in order.
  const std::vector<FileDigest>& digests() const { return digests_; }

  /// The metrics, the same on every rank; nothing when a rank was asked to stop.
  std::optional<std::map<std::string, double>> run() const;

 private:
  struct Set {
    std::string name;
    std::vector<Trajectory> lines;
    int64_t tokens = 0;  // of the responses
  };
  std::optional<double> loss_of(const Set& set) const;

  Parts p_;
  std::vector<Set> sets_;
  std::vector<FileDigest> digests_;
};

}  // namespace temper
