#pragma once
// Prompts of a run, one after the other: the data order, rendered and tokenised, too long ones treated by
// data.overlong. The cursor is the whole state: it is checkpointed, and every rank moves it alike.

#include <functional>
#include <memory>

#include "src/config/config.h"
#include "src/data/dataset.h"
#include "src/data/prompt_builder.h"

namespace temper {

struct DrawnPrompt {
  int64_t position = 0;
  Prompt prompt;
  std::shared_ptr<const Json> record;
};

PromptOptions prompt_options(const DataConfig& section);

class PromptStream {
 public:
  struct Limits {
    int64_t max_prompt_tokens = 0;
    int64_t max_sequence_tokens = 0;  // prompt and response (SFT)
    bool with_response = false;
    int64_t vocab_size = int64_t{1} << 31;      // of the model: larger ids are refused
    std::vector<int64_t> media_token_ids = {};  // likewise, as ModelConfig has them
    std::vector<HarnessConfig> harnesses = {};  // one plays each line; none: lines are not played

    bool fits(const Prompt& prompt) const;
    /// Error(Exit::data) at `where` for a token, of the prompt or its response, that the model has no row
    /// for.
    void require_known_ids(const Prompt& prompt, const std::string& where) const;
    /// Error(Exit::data) at `where` for a line that no program plays.
    void require_player(const Json& record, const std::string& where) const;
  };
  PromptStream(const std::vector<DataSource>& files, const DataConfig& data, uint64_t seed,
               const Tokenizer& tokenizer, const ChatTemplate* chat_template, const Limits& limits);

  std::vector<DrawnPrompt> next(int64_t count);
  /// The prompt that was drawn at a position.
  DrawnPrompt at(int64_t position);
  /// Every line once, in file order (validation); `check_answer` as above.
  std::vector<DrawnPrompt> all(
      int64_t max_count,
      const std::function<void(const Prompt&, const std::string& where)>& check_answer = {});
  /// Renders every line, so that a bad one is found before step 1. `check_answer` sees each with its answer.
  void check_all(
      const std::function<void(const Prompt& prompt, const std::string& where)>& check_answer) const;

  /// What its files held when they were read.
  std::vector<FileDigest> digests() const { return dataset_.digests(); }
  /// The first line has a response.
  bool has_responses() const { return builder_.has_response(dataset_.line(0)); }
  /// Lines that data.overlong does not drop.
  int64_t count_fitting() const;
  /// Lines of the data; their turns where each is a sample.
  int64_t num_lines() const { return dataset_.num_lines(); }

  int64_t position() const { return position_; }
  void set_position(int64_t position) { position_ = position; }

 private:
  /// The prompt has its own length, whatever the limit.
  DrawnPrompt build(int64_t position);
  /// False when the prompt is dropped.
  bool fit(Prompt& prompt, const std::string& where) const;

  Dataset dataset_;
  PromptBuilder builder_;
  std::string overlong_;
  Limits limits_;
  int64_t position_ = 0;
};

}  // namespace temper
