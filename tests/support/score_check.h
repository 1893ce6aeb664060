#pragma once
// Rollouts against `temper score`: the log-prob of every token is, to the bit, what the exported weights of
// its version say.

#include <gtest/gtest.h>

#include "src/core/file.h"
#include "tests/support/program.h"

namespace temper {

/// The version of each token of a line of a rollout file.
inline std::vector<int64_t> token_versions(const Json& line) {
  const size_t tokens = line.at("response_tokens").size();
  if (!line.contains("policy_versions")) return std::vector<int64_t>(tokens, line.at("policy_version")[0]);
  std::vector<int64_t> versions;
  for (const Json& run : line.at("policy_versions"))
    versions.insert(versions.end(), run[1].get<size_t>(), run[0].get<int64_t>());
  EXPECT_EQ(versions.size(), tokens);
  return versions;
}

/// Checks `score` on a run of `steps` steps that began with `first_model` and exported after each; `how`:
/// options of `score`. Returns how many tokens older weights than those of the last step before theirs have
/// made.
inline int64_t expect_score_agrees(const Program& program, const std::string& run, int64_t steps,
                                   const std::string& first_model, const std::string& how) {
  std::vector<Json> lines;
  int64_t older = 0;
  for (int64_t step = 1; step <= steps; ++step)
    for (const Json& line :
         program.json_lines(fmt::format("runs/{}/rollouts/{}.jsonl", run, step_name(step)))) {
      for (const int64_t version : token_versions(line)) older += version < step - 1;
      lines.push_back(line);
    }
  std::string input;
  for (const Json& line : lines) {
    Json tokens = line.at("prompt_tokens");
    for (const Json& id : line.at("response_tokens")) tokens.push_back(id);
    input += dump_json_line({{"tokens", tokens}}) + "\n";
  }
  program.write("score-input.jsonl", input);
  int64_t compared = 0;
  for (int64_t version = 0; version < steps; ++version) {
    const std::string model =
        version == 0 ? first_model : fmt::format("runs/{}/export/{}", run, step_name(version));
    EXPECT_EQ(
        program.run(fmt::format("score --model {} --input score-input.jsonl {} > scores.jsonl", model, how)),
        0)
        << program.output();
    const std::vector<Json> scores = program.json_lines("scores.jsonl");
    EXPECT_EQ(scores.size(), lines.size());
    for (size_t i = 0; i < std::min(scores.size(), lines.size()); ++i) {
      const Json &said = lines[i].at("logprobs"), &scored = scores[i].at("logprobs");
      const std::vector<int64_t> versions = token_versions(lines[i]);
      for (size_t t = 0; t < said.size(); ++t) {
        if (versions[t] != version || lines[i].at("response_mask")[t] == 0) continue;  // nobody sampled it
        EXPECT_EQ(said[t], scored[scored.size() - said.size() + t])
            << run << ", version " << version << ", line " << i << ", token " << t;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0);
  return older;
}

}  // namespace temper
