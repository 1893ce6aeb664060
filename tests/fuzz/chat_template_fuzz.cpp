// A chat template, and its variables as JSON behind a line "=====". A tenth of the program's limits: an input
// has to end within them, or what it spends its time on is not charged.

#include "src/data/chat_template.h"
#include "tests/fuzz/fuzz.h"

namespace temper {

void fuzz(std::string_view input) {
  constexpr TemplateLimits kLimits{
      .steps = 500'000, .output_bytes = int64_t{2} << 20, .memory_bytes = int64_t{32} << 20};
  const auto parts = parts_of(input, 2);
  takes([&] {
    const ChatTemplate chat(std::string(parts[0]), "template");
    Json variables = Json::parse(R"({"messages": [{"role": "system", "content": "Be short."},
        {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}], "bos_token": "<s>",
        "eos_token": "</s>", "add_generation_prompt": true, "date_string": "26 Jul 2024"})");
    if (!parts[1].empty()) variables = parse_json(parts[1], "variables");
    if (!variables.is_object()) return;
    const std::string text = chat.render(variables, kLimits);
    require(std::ssize(text) <= kLimits.output_bytes, "more text than the limit");
    require(text == chat.render(variables, kLimits), "a template rendered twice");
  });
}

}  // namespace temper
