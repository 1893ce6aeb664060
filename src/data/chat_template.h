#pragma once
// Chat templates of Hugging Face model folders: a bounded interpreter of the part of Jinja2 that they use.
// Rendering is byte-identical to transformers' apply_chat_template (trim_blocks, lstrip_blocks, loop
// controls, `generation` blocks, plain JSON from `tojson`); whatever lies outside of the supported part is
// refused with line and column, never rendered differently. Templates are untrusted: steps, depth, output and
// memory are bounded, nothing of the machine (clock, files, random numbers) can be seen from one.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/core/digest/file_digest.h"
#include "src/core/json.h"
#include "src/data/jinja/limits.h"

namespace temper {

namespace jinja {
struct Program;
}

class ChatTemplate {
 public:
  /// Parses; Exit::data error with `source` and line:column on unsupported or wrong syntax.
  ChatTemplate(std::string text, std::string source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Template text of a model folder: chat_template.jinja, else tokenizer_config.json chat_template (string,
  /// or list of {name, template}: "default"). nullopt when the folder has none.
  static std::optional<ChatTemplate> load(const std::string& folder);

  /// `variables`: messages, tools, add_generation_prompt, special tokens (bos_token, ...; leave unset ones
  /// out), any other. As in transformers, absent `tools` and `documents` are none (given ones are lists of
  /// objects), an absent add_generation_prompt is false, and a message's reasoning is found under
  /// reasoning_content and thinking whichever of reasoning_content, thinking, reasoning it came as. Keys of
  /// messages whose value is null, `content` too, are dropped. strftime_now(format) formats the variable
  /// date_string ("26 Jul 2024" or "2024-07-26").
  /// Exit::data error naming the template line on raise_exception, type errors or a limit. Thread-safe.
  std::string render(const Json& variables, const TemplateLimits& limits = {}) const;

  const std::string& source() const { return source_; }
  /// The text, under its source.
  const FileDigest& digest() const { return digest_; }

 private:
  std::string source_;
  FileDigest digest_;
  std::unique_ptr<const jinja::Program> program_;
};

}  // namespace temper
