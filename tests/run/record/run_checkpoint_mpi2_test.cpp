// Entries of a checkpoint as roles write and read them: exact, shared out over the ranks, refused when they
// are missing or of another kind.

#include "src/rl/trajectory_bytes.h"
#include "src/run/record/run_checkpoint.h"
#include "tests/support/expect_error.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

class RunCheckpoint : public OnRanks {};

TEST_F(RunCheckpoint, EntriesComeBackExactly) {
  std::vector<std::string> texts = {"", "a", "abcd", std::string("\0\xff\n", 3), std::string(4099, 'z')};
  float values[6] = {0, 1, 2, 3, 4, 5}, back[6] = {};
  CheckpointWriter writer(*comm_);
  for (size_t i = 0; i < texts.size(); ++i) writer.bytes(fmt::format("roles/toy/{}", i), texts[i]);
  const FlatRange mine = shard_range(6, comm_->rank(), comm_->size());  // all of it on rank 0
  writer.tensor({"values", {2, 3}, mine, make_tensor(values + mine.begin, DType::f32, {mine.size()})});
  writer.count("roles/toy/count", int64_t{1} << 40);
  writer.text("roles/toy/text", "as it is");
  writer.write(folder_, 3, false);

  const CheckpointReader reader(folder_ + "/step-000003");
  EXPECT_EQ(reader.step(), 3);
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(
        reader.parsed(fmt::format("roles/toy/{}", i), [](std::string_view b) { return std::string(b); }),
        texts[i]);
  reader.fill({{"values", {2, 3}, {0, 6}, make_tensor(back, DType::f32, {6})}});
  EXPECT_TRUE(std::equal(values, values + 6, back));
  EXPECT_EQ(reader.count("roles/toy/count"), int64_t{1} << 40);
  EXPECT_EQ(reader.text("roles/toy/text"), "as it is");
  EXPECT_TRUE(read_unfinished(reader).empty());
}

TEST_F(RunCheckpoint, WhatIsMissingOrOfAnotherKindIsRefused) {
  float values[2] = {0, 1};
  int32_t words[3] = {9, 0, 7}, one[1] = {7};  // 9 bytes in one word
  CheckpointWriter writer(*comm_);
  if (comm_->rank() == 0) {
    writer.tensor({"floats", {2}, {0, 2}, make_tensor(values, DType::f32, {2})});
    writer.tensor({"short", {3}, {0, 3}, make_tensor(words, DType::i32, {3})});
    writer.tensor({"tiny", {1}, {0, 1}, make_tensor(one, DType::i32, {1})});
  }
  writer.bytes(kUnfinished, "no groups");
  writer.write(folder_, 1, false);
  const CheckpointReader reader(folder_ + "/step-000001");
  const auto size_of = [&](const char* name) {
    return reader.parsed(name, [](std::string_view b) { return b.size(); });
  };
  expect_error(Exit::data, {"nothing", "it is missing"}, "missing", [&] { size_of("nothing"); });
  expect_error(Exit::data, {"floats"}, "another type", [&] { size_of("floats"); });
  expect_error(Exit::data, {"short", "9 bytes in 3 words"}, "a size beyond the words",
               [&] { size_of("short"); });
  expect_error(Exit::data, {"tiny", "at least 2 words"}, "no room for a size", [&] { size_of("tiny"); });
  expect_error(Exit::data, {"unfinished", "temper verify"}, "no groups", [&] { read_unfinished(reader); });
  expect_error(Exit::data, {"roles/toy/count"}, "no count", [&] { reader.count("roles/toy/count"); });
}

/// The digests match: what is wrong is the content.
TEST_F(RunCheckpoint, GroupsThatCannotBeAreNamed) {
  Trajectory t;
  t.prompt_tokens = {1};
  t.response.tokens = {2, 3};
  t.response.mask = {1, 1};
  std::vector<Trajectory> wrong(5, t);
  wrong[0].response.mask = {1};
  wrong[1].response.logprobs = {-1};
  wrong[2].response.tokens = {2, -3};
  wrong[3].sample = 1;
  wrong[4].response.versions = {{1, 1}};
  int64_t step = 0;
  for (const Trajectory& sample : wrong) {
    CheckpointWriter writer(*comm_);
    const Group group{{sample}};
    writer.bytes(kUnfinished, groups_to_bytes({&group, 1}));
    writer.write(folder_, ++step, false);
    const CheckpointReader reader(folder_ + fmt::format("/step-{:06d}", step));
    expect_error(Exit::data, {"unfinished", "group 0"}, fmt::format("{}", step),
                 [&] { read_unfinished(reader); });
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }
