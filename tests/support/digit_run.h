#pragma once
// Runs whose responses are digits: the logits of the digits' tokens are so large that an untrained model says
// nothing else. Some answers are right then, by chance and soon by training.

#include "tests/support/run_fixture.h"

namespace temper {

/// "rollout.logit_bias = {...}" for the tokenizer of the tests.
inline std::string digits_alone() {
  const std::string file = "tests/golden/tokenizer/minimind/tokenizer.json";
  const Json vocabulary = parse_json(read_file(file, int64_t{1} << 30), file).at("model").at("vocab");
  std::string bias;
  for (char digit = '0'; digit <= '9'; ++digit)
    bias +=
        fmt::format("{}{} = 100", bias.empty() ? "" : ", ", vocabulary.at(std::string(1, digit)).get<int>());
  return "rollout.logit_bias = {" + bias + "}\n";
}

/// Questions with answers of one digit; every second is of the domain "even".
inline std::string digit_questions(int count) {
  std::string data;
  for (int i = 0; i < count; ++i)
    data += fmt::format("{{\"prompt\":\"What is {} minus {}?\",\"answer\":\"{}\",\"data_source\":\"{}\"}}\n",
                        3 * i, 3 * i - i % 4, i % 4, i % 2 == 0 ? "even" : "odd");
  return data;
}

}  // namespace temper
