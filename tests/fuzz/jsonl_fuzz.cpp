// A data file. Every line of one that is taken can be read, in file order and in the order of a run.

#include "src/data/dataset.h"
#include "tests/fuzz/fuzz.h"

namespace temper {

void fuzz(std::string_view input) {
  const std::string path = input_file("data.jsonl", input);
  takes([&] {
    Dataset data({{path, 1.0}, {path, 0.5}}, 7, /*shuffle=*/true);
    for (int64_t i = 0; i < data.num_lines(); ++i) require(data.line(i).is_object(), data.where_line(i));
    for (int64_t i = 0; i < 2 * data.num_lines(); ++i) require(data.record(i).is_object(), data.where(i));
  });
}

}  // namespace temper
