// Rollout files and trajectory messages: exact round trips, defaults, and refusal of damaged input.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/answer_text.h"
#include "src/core/text/block_reader.h"
#include "src/rl/trajectory_bytes.h"
#include "src/rl/trajectory_json.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

Trajectory example() {
  Trajectory t;
  t.data_position = 2;
  t.group = 2;
  t.sample = 1;
  t.prompt_tokens = {5, 0, 7};
  t.response.tokens = {1, 151642, 3};
  t.response.mask = {1, 1, 0};
  t.response.logprobs = {-0.1, -1.0 / 3, -0x1.fffffffffffffp-3};
  t.ref_logprobs = {-0.2, -0.3, -0.4};
  t.response.versions = {{4, 1}, {7, 2}};
  t.response.finish = FinishReason::length;
  t.prompt = "2+2=";
  t.response.text = "4 \"quoted\" \xC3\xA9\n";
  t.answer = "4";
  t.raw_reward = 0.1 + 0.2;
  t.reward = -0.7;
  t.reward_parts = {{"math", 1}, {"length", -0.25}};
  t.advantage = 1.0 / 7;
  return t;
}

void expect_same(const Trajectory& a, const Trajectory& b) {
  EXPECT_EQ(a.prompt_tokens, b.prompt_tokens);
  EXPECT_EQ(a.response.tokens, b.response.tokens);
  EXPECT_EQ(a.response.mask, b.response.mask);
  EXPECT_EQ(a.response.logprobs, b.response.logprobs);
  EXPECT_EQ(a.ref_logprobs, b.ref_logprobs);
  EXPECT_EQ(a.response.finish, b.response.finish);
  EXPECT_EQ(a.prompt, b.prompt);
  EXPECT_EQ(a.response.text, b.response.text);
  EXPECT_EQ(a.answer, b.answer);
  EXPECT_EQ(a.raw_reward, b.raw_reward);
  EXPECT_EQ(a.reward, b.reward);
  EXPECT_EQ(a.reward_parts, b.reward_parts);
}

class TempFile {
 public:
  explicit TempFile(const std::string& content)
      : path_("/tmp/temper_rollouts_" + std::to_string(::getpid())) {
    write_file_atomic(path_, content);
  }
  ~TempFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Only trajectories that have them show a teacher and advantages by token.
TEST(Trajectory, TeacherAndAdvantagesByToken) {
  Trajectory t = example();
  const std::string plain = trajectory_to_json(t, 1).dump();
  EXPECT_EQ(plain.find("teacher_logprobs"), std::string::npos);
  EXPECT_EQ(plain.find("advantages"), std::string::npos);
  t.teacher_logprobs = {-0.25, -1.0 / 3, -0.5};
  t.advantages = {0.1, 1.0 / 3, 0};
  t.excluded = true;
  const Json line = trajectory_to_json(t, 1);
  EXPECT_EQ(line.at("teacher_logprobs").get<std::vector<double>>(), t.teacher_logprobs);
  EXPECT_EQ(line.at("advantages").get<std::vector<double>>(), t.advantages);
  const Trajectory read = trajectory_from_json(parse_json(line.dump(), "x"), "x", {});
  EXPECT_EQ(read.teacher_logprobs, t.teacher_logprobs);
  EXPECT_TRUE(read.advantages.empty()) << "they are made again";
  std::string bytes;
  append_trajectory(bytes, t);
  append_trajectory(bytes, example());
  std::string_view rest = bytes;
  const Trajectory sent = take_trajectory(rest);
  EXPECT_EQ(sent.teacher_logprobs, t.teacher_logprobs);
  EXPECT_TRUE(sent.excluded);
  EXPECT_TRUE(take_trajectory(rest).teacher_logprobs.empty());
  EXPECT_TRUE(rest.empty());
}

/// Versions of single tokens come after the keys of the format, where one pair does not say them.
TEST(TrajectoryJson, HasTheKeysOfTheFormatInOrder) {
  const Json several = trajectory_to_json(example(), 12);
  EXPECT_EQ((--several.end()).key(), "policy_versions");
  Json line = several;
  line.erase("policy_versions");
  Trajectory one = example();
  one.response.versions.resize(1);
  EXPECT_FALSE(trajectory_to_json(one, 12).contains("policy_versions"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : line.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"step", "group", "sample", "prompt_tokens", "response_tokens",
                                            "response_mask", "logprobs", "ref_logprobs", "reward",
                                            "raw_reward", "reward_parts", "advantage", "policy_version",
                                            "finish_reason", "prompt", "response", "answer"}));
  EXPECT_EQ(line["step"], 12);
  EXPECT_EQ(line["policy_version"], Json::parse("[4,7]"));
  EXPECT_EQ(line["finish_reason"], "length");
}

TEST(TrajectoryJson, RoundTripIsExact) {
  const Trajectory t = example();
  const std::string text = dump_json_line(trajectory_to_json(t, 1));
  const Trajectory back = trajectory_from_json(parse_json(text, "x"), "x", {});
  expect_same(t, back);
  EXPECT_EQ(back.group, 2);
  EXPECT_EQ(back.sample, 1);
}

TEST(TrajectoryJson, AListOfAnswersIsAList) {
  Trajectory t = example();
  t.answer = answer_text(Json::parse(R"(["1/2",3])"));
  const Json line = trajectory_to_json(t, 1);
  EXPECT_EQ(line["answer"], Json::parse(R"(["1/2",3])"));
  EXPECT_EQ(trajectory_from_json(line, "x", {}).answer, t.answer);
}

TEST(TrajectoryJson, NoRewardIsNull) {
  Trajectory t = example();
  t.excluded = true;
  t.raw_reward = t.reward = 0;
  const Json line = trajectory_to_json(t, 1);
  EXPECT_TRUE(line["reward"].is_null());
  EXPECT_TRUE(line["raw_reward"].is_null());
  const Trajectory back = trajectory_from_json(line, "x", {});
  EXPECT_TRUE(back.excluded);
  expect_same(t, back);
  EXPECT_FALSE(trajectory_from_json(trajectory_to_json(example(), 1), "x", {}).excluded);
  std::string bytes;
  append_trajectory(bytes, t);
  std::string_view rest = bytes;
  EXPECT_TRUE(take_trajectory(rest).excluded);
}

TEST(TrajectoryJson, UnknownLogprobsAreNull) {
  Trajectory t = example();
  t.response.logprobs.clear();
  t.ref_logprobs.clear();
  t.response.versions.clear();
  Json line = trajectory_to_json(t, 1);
  EXPECT_TRUE(line["logprobs"].is_null());
  EXPECT_TRUE(line["ref_logprobs"].is_null());
  EXPECT_TRUE(line["policy_version"].is_null());
  expect_same(t, trajectory_from_json(line, "x", {}));
}

TEST(TrajectoryJson, DefaultsOfAShortLine) {
  const Json line = Json::parse(R"({"group":0,"prompt_tokens":[1],"response_tokens":[2,3],"reward":1})");
  const Trajectory t = trajectory_from_json(line, "x", {});
  EXPECT_EQ(t.response.mask, (std::vector<uint8_t>{1, 1}));
  EXPECT_TRUE(t.response.logprobs.empty());
  EXPECT_TRUE(t.ref_logprobs.empty());
  EXPECT_EQ(t.raw_reward, 1);
  EXPECT_EQ(t.response.finish, FinishReason::stop);
}

TEST(TrajectoryJson, LogprobsAtMaskZeroAreIgnored) {
  const Json line = Json::parse(R"({"group":0,"prompt_tokens":[1],"response_tokens":[2,3],"reward":0,
      "response_mask":[0,1],"logprobs":[null,-1]})");
  EXPECT_EQ(trajectory_from_json(line, "x", {}).response.logprobs[1], -1);
}

void expect_data_error(const std::string& line, const std::string& part, const ReplayLimits& limits = {}) {
  try {
    trajectory_from_json(parse_json(line, "f:3"), "f:3", limits);
    FAIL() << "accepted: " << line;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::data) << line;
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(error.problem().where, "f:3");
  }
}

TEST(TrajectoryJson, RefusesDefects) {
  auto with = [](const std::string& rest) {
    return R"({"group":0,"prompt_tokens":[1],"response_tokens":[2,3],"reward":1,)" + rest + "}";
  };
  expect_data_error("[]", "not an object");
  expect_data_error(R"({"prompt_tokens":[1],"response_tokens":[2],"reward":1})", "wrong group");
  expect_data_error(R"({"group":0,"response_tokens":[2],"reward":1})", "wrong prompt_tokens");
  expect_data_error(R"({"group":0,"prompt_tokens":[1],"reward":1})", "wrong response_tokens");
  expect_data_error(R"({"group":0,"prompt_tokens":[1],"response_tokens":[2]})", "wrong reward");
  expect_data_error(R"({"group":0,"prompt_tokens":[1],"response_tokens":[2],"reward":null})", "wrong reward");
  expect_data_error(R"({"group":0,"prompt_tokens":[],"response_tokens":[2],"reward":1})", "it is empty");
  expect_data_error(R"({"group":-1,"prompt_tokens":[1],"response_tokens":[2],"reward":1})",
                    "-1 is not an integer");
  expect_data_error(R"({"group":0.5,"prompt_tokens":[1],"response_tokens":[2],"reward":1})", "0.5 is not");
  expect_data_error(R"({"group":18446744073709551615,"prompt_tokens":[1],"response_tokens":[2],"reward":1})",
                    "group");
  expect_data_error(R"({"group":0,"prompt_tokens":[-4],"response_tokens":[2],"reward":1})",
                    "prompt_tokens[0]");
  expect_data_error(R"({"group":0,"prompt_tokens":[1],"response_tokens":[1,2.0],"reward":1})",
                    "response_tokens[1]");
  expect_data_error(R"({"group":0,"prompt_tokens":[1],"response_tokens":[9],"reward":1})", "[0, 7]",
                    {.vocab_size = 8});
  expect_data_error(R"({"group":0,"prompt_tokens":[1],"response_tokens":[9],"reward":1})", "the context of 1",
                    {.context_tokens = 1});
  expect_data_error(R"({"group":0,"prompt_tokens":[1],"response_tokens":[9],"reward":"1"})",
                    "not a finite number");
  expect_data_error(with(R"("response_mask":[1])"), "it has 1 entries, response_tokens has 2");
  expect_data_error(with(R"("response_mask":[1,2])"), "response_mask[1]");
  expect_data_error(with(R"("response_mask":[1,true])"), "response_mask[1]");
  expect_data_error(with(R"("logprobs":[-1])"), "wrong logprobs");
  expect_data_error(with(R"("logprobs":[-1,null])"), "logprobs[1]");
  expect_data_error(with(R"("ref_logprobs":[-1,-1,-1])"), "wrong ref_logprobs");
  expect_data_error(with(R"("raw_reward":[])"), "wrong raw_reward");
  expect_data_error(with(R"("reward_parts":[1])"), "wrong reward_parts");
  expect_data_error(with(R"("reward_parts":{"a":"b"})"), "reward_parts.a");
  expect_data_error(with(R"("finish_reason":"eos")"), "finish_reason");
  expect_data_error(with(R"("answer":4)"), "wrong answer");
  expect_data_error(with(R"("sample":-1)"), "wrong sample");
}

TEST(ReadRollouts, GroupsByNumberAndRenumbers) {
  auto line = [](int group, int sample, int token) {
    return fmt::format(R"({{"group":{},"sample":{},"prompt_tokens":[1],"response_tokens":[{}],"reward":0}})",
                       group, sample, token) +
           "\n";
  };
  TempFile file(line(9, 4, 1) + "\n" + line(3, 0, 2) + line(9, 2, 3));
  const std::vector<Group> groups = read_rollouts(file.path(), {});
  ASSERT_EQ(groups.size(), 2u);
  ASSERT_EQ(groups[1].samples.size(), 2u);
  EXPECT_EQ(groups[0].samples[0].response.tokens[0], 2);
  EXPECT_EQ(groups[1].samples[0].response.tokens[0], 3);
  EXPECT_EQ(groups[1].samples[1].response.tokens[0], 1);
  EXPECT_EQ(groups[1].samples[1].group, 1);
  EXPECT_EQ(groups[1].samples[1].sample, 1);
  EXPECT_EQ(groups[1].samples[1].data_position, 1);
}

TEST(ReadRollouts, SamplesWithoutNumbersKeepTheirOrder) {
  const std::string head = R"({"group":0,"prompt_tokens":[1],"reward":0,"response_tokens":[)";
  TempFile file(head + "1]}\n" + head + "2]}\n" + head + "3]}");  // no end of line at the end
  const std::vector<Group> groups = read_rollouts(file.path(), {});
  ASSERT_EQ(groups[0].samples.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(groups[0].samples[static_cast<size_t>(i)].response.tokens[0], i + 1);
}

void expect_file_error(const std::string& content, const std::string& part) {
  TempFile file(content);
  try {
    read_rollouts(file.path(), {});
    FAIL() << content;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::data);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

/// A run writes such a file for a step that finished no prompt.
TEST(ReadRollouts, AnEmptyFileHasNoGroups) {
  const TempDir folder;
  const std::string empty = folder / "empty", blank = folder / "blank", full = folder / "full";
  write_file_atomic(empty, "");
  write_file_atomic(blank, " \n\r\n");
  write_file_atomic(full, "\n{}\n");
  EXPECT_TRUE(read_rollouts(empty, {}).empty());
  EXPECT_TRUE(read_rollouts(blank, {}).empty());
  require_responses({empty, full});
  EXPECT_THROW(require_responses({empty, blank}), Error);
}

/// The digest is that of the file as it lies there, packed or not.
TEST(ReadRollouts, TellsWhatTheFileHeld) {
  std::string lines;
  for (int i = 0; i < 30000; ++i)
    lines +=
        fmt::format(R"({{"group":{},"prompt_tokens":[1],"response_tokens":[{}],"reward":0}})", i, i) + "\n";
  for (const std::string& content : {lines, zstd_packed(lines), std::string()}) {
    TempFile file(content);
    FileDigest held;
    EXPECT_EQ(read_rollouts(file.path(), {}, &held).size(), content.empty() ? 0u : 30000u);
    EXPECT_EQ(held.text(), digest_of_file(file.path()).text());
  }
}

TEST(ReadRollouts, RefusesDefectsWithTheLine) {
  const std::string good = R"({"group":0,"sample":0,"prompt_tokens":[1],"response_tokens":[1],"reward":0})";
  expect_file_error(good + "\n" + good + "\n", ":2");
  expect_file_error(good + "\n{\"group\":\n", ":2");
  EXPECT_THROW(read_rollouts("/nonexistent/rollouts", {}), Error);
}

TEST(TrajectoryBytes, RoundTripIsExact) {
  std::vector<Group> groups(3);
  groups[0].samples = {example(), Trajectory{}};
  groups[2].samples = {example()};
  groups[2].samples[0].response.logprobs[0] = -0.0;
  const std::string bytes = groups_to_bytes(groups);
  const std::vector<Group> back = groups_from_bytes(bytes);
  ASSERT_EQ(back.size(), 3u);
  ASSERT_EQ(back[0].samples.size(), 2u);
  EXPECT_TRUE(back[1].samples.empty());
  expect_same(back[0].samples[0], example());
  EXPECT_EQ(back[0].samples[0].response.versions, example().response.versions);
  EXPECT_EQ(back[0].samples[0].data_position, 2);
  EXPECT_EQ(back[0].samples[0].advantage, example().advantage);
  EXPECT_TRUE(std::signbit(back[2].samples[0].response.logprobs[0]));
  EXPECT_EQ(groups_to_bytes(back), bytes);
}

TEST(TrajectoryBytes, EveryCutAndLongLengthIsRefused) {
  Group group;
  group.samples = {example()};
  const std::string bytes = groups_to_bytes(std::span(&group, 1));
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_THROW(groups_from_bytes(std::string_view(bytes).substr(0, cut)), Error) << cut;
  }
  EXPECT_THROW(groups_from_bytes(bytes + "x"), Error);
  for (size_t at = 0; at + 8 <= bytes.size(); ++at) {  // a false length anywhere never reads outside
    std::string damaged = bytes;
    damaged.replace(at, 8, 8, '\xFF');
    try {
      groups_from_bytes(damaged);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::internal);
    }
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
