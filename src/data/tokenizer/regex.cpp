#include "src/data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "src/core/check.h"

namespace temper {
namespace {

// A run of n blanks costs about n steps of backtracking, so the limit grows with the subject.
constexpr size_t kMatchSteps = 10'000'000;
constexpr size_t kMatchStepsPerByte = 16;
constexpr uint32_t kHeapKib = 1u << 20;
constexpr size_t kJitStackBytes = size_t{256} << 20;

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

void Regex::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }
void RegexMatcher::FreeData::operator()(pcre2_real_match_data_8* data) const { pcre2_match_data_free(data); }
void RegexMatcher::FreeData::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free(context);
}
void RegexMatcher::FreeData::operator()(pcre2_real_jit_stack_8* stack) const { pcre2_jit_stack_free(stack); }

Regex::Regex(const std::string& pattern, const JsonSection& section) : pattern_(pattern) {
  const std::string translated = translate_pattern(pattern, section);
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  CHECK(context, "no memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Ruby's ^ and $ always mean lines.
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context.get()));
  if (!code_)
    section.refuse(fmt::format("is not a usable regular expression: {} (byte {} of `{}`)",
                               pcre2_message(error), offset, translated.substr(0, 200)));
  jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

RegexMatcher::RegexMatcher(const Regex& regex)
    : regex_(regex),
      data_(pcre2_match_data_create_from_pattern(regex.code_.get(), nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  CHECK(data_ && context_, "no memory for matching");
  pcre2_set_heap_limit(context_.get(), kHeapKib);
}

int RegexMatcher::match(std::string_view subject, size_t from) {
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  if (regex_.jit_)
    return pcre2_jit_match(regex_.code_.get(), text, subject.size(), from, 0, data_.get(), context_.get());
  return pcre2_match(regex_.code_.get(), text, subject.size(), from, PCRE2_NO_UTF_CHECK, data_.get(),
                     context_.get());
}

bool RegexMatcher::find(std::string_view subject, size_t from, size_t* begin, size_t* end) {
  if (from == 0)
    pcre2_set_match_limit(
        context_.get(), static_cast<uint32_t>(
                            std::min<size_t>(kMatchSteps + kMatchStepsPerByte * subject.size(), UINT32_MAX)));
  int found = match(subject, from);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
    stack_.reset(pcre2_jit_stack_create(size_t{1} << 20, kJitStackBytes, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    found = match(subject, from);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    fail(Exit::data, {.what = "a regular expression of tokenizer.json costs too much on this text",
                      .where = "pattern `" + regex_.pattern_.substr(0, 200) + "`",
                      .why = fmt::format("{} at byte {} of a piece of {} bytes", pcre2_message(found), from,
                                         subject.size()),
                      .fix = "shorten the text, or use a tokenizer without nested repeats in its pattern"});
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data_.get());
  *begin = span[0];
  *end = span[1];
  CHECK(*begin <= *end && *end <= subject.size(), "match {}..{} of {}", *begin, *end, subject.size());
  return true;
}

}  // namespace temper
