// tokenizer.json, and a text behind a line "=====". What is taken encodes and decodes; ids in a stream decode
// to the same text as all at once.

#include "src/core/text/printable.h"
#include "src/data/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace temper {

void fuzz(std::string_view input) {
  const auto parts = parts_of(input, 2);
  input_file("tokenizer.json", parts[0]);
  takes([&] {
    const Tokenizer tokenizer = Tokenizer::load(input_folder());
    for (const std::string_view text : {std::string_view("It's 12 x 3.5 = \xC3\xA9\n\n  <s>a"), parts[1]}) {
      const std::vector<int32_t> ids = tokenizer.encode(text, true);
      require(ids == tokenizer.encode(text, true), "a text encoded twice");
      for (const bool skip : {false, true}) {
        StreamDecoder stream(tokenizer, skip);
        std::string streamed;
        for (const int32_t id : ids) streamed += stream.push(id);
        streamed += stream.finish();
        require(streamed == tokenizer.decode(ids, skip), "a stream decoded otherwise");
      }
    }
  });
}

}  // namespace temper
