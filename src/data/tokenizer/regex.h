#pragma once
// Regular expressions of tokenizer.json (Oniguruma, Ruby syntax) on PCRE2. The two dialects share most of
// their syntax but not its meaning everywhere, so a pattern is screened and rewritten before it is compiled:
// only constructs that mean the same in both are accepted. The pattern and the subject come from outside:
// match and heap limits bound every attempt.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "src/data/tokenizer/json.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace temper {

/// The pattern in PCRE2 syntax; refuses (naming the section) what PCRE2 would understand differently.
std::string translate_pattern(const std::string& pattern, const JsonSection& section);

/// A compiled pattern, shareable between threads.
class Regex {
 public:
  Regex(const std::string& pattern, const JsonSection& section);

 private:
  friend class RegexMatcher;
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
  std::string pattern_;
  bool jit_ = false;
};

/// Scratch of one thread for one Regex.
class RegexMatcher {
 public:
  explicit RegexMatcher(const Regex& regex);

  /// First match in `subject` (valid UTF-8) that begins at or after `from`.
  bool find(std::string_view subject, size_t from, size_t* begin, size_t* end);

 private:
  int match(std::string_view subject, size_t from);
  struct FreeData {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };
  const Regex& regex_;
  std::unique_ptr<pcre2_real_match_data_8, FreeData> data_;
  std::unique_ptr<pcre2_real_match_context_8, FreeData> context_;
  std::unique_ptr<pcre2_real_jit_stack_8, FreeData> stack_;  // made when the default one is too small
};

}  // namespace temper
