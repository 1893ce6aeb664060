// The pages of `temper help TOPIC`: short, true, and each command in them does what it says: it is run here,
// on a tiny model and with programs in the place of those that need a network or a cluster.

#include "src/run/verbs/help/topics.h"

#include <regex>

#include "src/config/load.h"
#include "src/core/split.h"
#include "src/run/report/metric_docs.h"
#include "src/run/verbs/help/help.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

using Lines = std::vector<std::string>;

/// The parts of a page that stand four columns in: commands, TOML, JSON and Python, without these columns.
std::vector<Lines> blocks(const TopicPage& page) {
  std::vector<Lines> all;
  bool inside = false;
  for (const std::string& line : split(page.text, '\n')) {
    const bool block = line.starts_with("    ") && (inside || line[4] != ' ');
    if (block && !inside) all.emplace_back();
    if (block) all.back().push_back(line.substr(4));
    inside = block;
  }
  return all;
}

std::string text_of(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

bool is_toml(const Lines& block) { return block[0][0] == '['; }
bool is_json(const Lines& block) { return block[0][0] == '{'; }
bool is_python(const Lines& block) { return block[0].starts_with("import "); }

/// What a user would type; a line that ends with a backslash goes on in the next one.
Lines commands(const TopicPage& page) {
  Lines all;
  for (const Lines& block : blocks(page)) {
    if (is_toml(block) || is_json(block) || is_python(block)) continue;
    bool goes_on = false;
    for (const std::string& line : block) {
      if (goes_on)
        all.back().replace(all.back().size() - 1, 1, line.substr(line.find_first_not_of(' ')));
      else
        all.push_back(line);
      goes_on = line.ends_with("\\");
    }
  }
  return all;
}

TEST(Topics, AreShortAndHaveATitle) {
  const Lines wanted{"quickstart", "data",     "train", "algorithm", "resume",         "rewards",
                     "agents",     "layouts",  "async", "memory",    "slurm",          "mpirun",
                     "metrics",    "trackers", "trl",   "verl",      "troubleshooting"};
  Lines names;
  const std::string overview = help_text(""), manual = help_text("man");
  for (const TopicPage& page : topic_pages()) {
    SCOPED_TRACE(page.name);
    names.emplace_back(page.name);
    EXPECT_TRUE(page.text.starts_with(fmt::format("{}: {}\n", page.name, page.summary())));
    EXPECT_NE(overview.find(fmt::format("  temper help {:<15} {}\n", page.name, page.summary())),
              std::string::npos);
    EXPECT_NE(manual.find(fmt::format("\n.SS {}\n.nf\n", page.name)), std::string::npos);
    const std::string text = help_text(names.back());
    EXPECT_NE(text.find(page.text), std::string::npos);
    int64_t lines = std::count(text.begin(), text.end(), '\n');
    // New metrics have their lines, too, as long as the page leaves room for those of today.
    if (page.name == "metrics") lines = std::count(page.text.begin(), page.text.end(), '\n') + 52;
    EXPECT_LE(lines, 60);
    for (const std::string& line : split(page.text, '\n')) EXPECT_LE(line.size(), 76u) << line;
  }
  EXPECT_EQ(names, wanted);
  EXPECT_LE(std::count(overview.begin(), overview.end(), '\n'), 60);
}

/// What a newcomer reads first: no wider than a terminal but for tables, few lines beside tables and code,
/// and every page of help is named.
TEST(Readme, IsShortAndNamesThePages) {
  const std::string text = read_file("README.md", 1 << 20);
  int64_t prose = 0;
  for (const std::string& line : split(text, '\n')) {
    if (line.starts_with("|")) continue;
    EXPECT_LE(line.size(), 80u) << line;
    prose += !line.empty() && line[0] != '#' && !line.starts_with("    ");
  }
  EXPECT_LE(prose, 110);
  const size_t more = text.find("\n## More\n");
  ASSERT_NE(more, std::string::npos);
  for (const TopicPage& page : topic_pages())
    EXPECT_NE(text.find(page.name, more), std::string::npos) << page.name;
}

/// A key or a section, `rollout.n` in the column of another trainer aside.
bool is_known(const std::string& word) {
  for (const KeyDoc& doc : config_key_docs())
    if (doc.key == word || doc.key.starts_with(word + ".")) return true;
  return false;
}

TEST(Topics, NameKeysAndMetricsThatExist) {
  static const std::regex key(
      "(^|[^A-Za-z0-9_./\"-])((run|model|tokenizer|algorithm|rollout|train|optimizer|data|"
      "reward|roles|cluster|checkpoint|validation|log|profile)(\\.[a-z0-9_]+)+)(?![a-z_]*/)");
  static const std::regex metric(
      "(^|[ (])((actor|critic|rollout|policy|perf|response_length)/[a-z_/]+[a-z])");
  int keys = 0, metrics = 0;
  for (const TopicPage& page : topic_pages())
    for (std::string line : split(page.text, '\n')) {
      SCOPED_TRACE(fmt::format("{}: {}", page.name, line));
      if (line.starts_with("    ") && line.find(" = ") != std::string::npos) continue;  // TOML: read below
      const bool table =
          (page.name == "verl" || page.name == "trl") && line.starts_with("  ") && line[2] != ' ';
      if (table) line = line.substr(std::min(line.find("  ", 2), line.size()));  // what is ours
      for (std::sregex_iterator at(line.begin(), line.end(), key), end; at != end; ++at, ++keys)
        EXPECT_TRUE(is_known((*at)[2]) || (*at)[2] == "tokenizer.json") << (*at)[2];
      for (std::sregex_iterator at(line.begin(), line.end(), metric), end; at != end; ++at, ++metrics) {
        const std::string name = (*at)[2];
        const bool known = std::any_of(metric_docs().begin(), metric_docs().end(), [&](const MetricDoc& doc) {
          return describes(doc, name) || doc.name.starts_with(name + "/");
        });
        EXPECT_TRUE(known) << name;
      }
    }
  EXPECT_GT(keys, 150);
  EXPECT_GT(metrics, 10);
}

TEST(Topics, ConfigsAndLinesInThemAreLegal) {
  const TempDir folder;
  int read = 0;
  for (const TopicPage& page : topic_pages())
    for (const Lines& block : blocks(page)) {
      SCOPED_TRACE(fmt::format("{}:\n{}", page.name, text_of(block)));
      for (const std::string& line : is_json(block) ? block : Lines{})
        EXPECT_TRUE(parse_json(line, "a line").contains("prompt"));
      if (!is_toml(block)) continue;
      write_file_atomic(folder / "part.toml", text_of(block));
      for (const ConfigError& error : read_config(folder / "part.toml", {}).errors)
        EXPECT_TRUE(error.message.starts_with("this key is required")) << error.key << ": " << error.message;
      ++read;
    }
  EXPECT_GE(read, 10);
}

/// In the place of what a test does not have: the network, a cluster.
const std::pair<const char*, const char*> kStandIns[] = {
    {"hf",
     "while [ $# -gt 1 ]; do [ $1 != download ] || what=$2; shift; done\n"
     "mkdir -p $(dirname $1)\n"
     "case $what in */gsm8k) cp -r gsm8k $1 ;; *) cp -r tiny $1 ;; esac\n"},
    {"tensorboard", "ls ${2}/*/tensorboard/events.out.tfevents.*\n"},
    {"sbatch",
     "while [[ $1 == --* ]]; do shift; done\n"
     "export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=1 SLURM_CPUS_PER_TASK=1 "
     "TEMPER=temper\nbash \"$@\"\n"},
    {"scontrol", ""},
    {"srun",
     "while [ $1 != temper ]; do shift; done\n"
     "mpirun -n ${SLURM_JOB_NUM_NODES:-1} --bind-to none \"$@\"\n"},
};

class TopicCommands : public RunFixture {
 protected:
  void SetUp() override {
    ASSERT_EQ(program_.shell("mkdir bin data gsm8k"), 0);
    for (const auto& [name, script] : kStandIns)
      program_.write(fmt::format("bin/{}", name), fmt::format("#!/bin/bash\n{}", script));
    ASSERT_EQ(program_.shell("chmod +x bin/*"), 0);
    for (const char* name : {"slurm", "tools"})
      std::filesystem::create_directory_symlink(std::filesystem::absolute(name), program_.path(name));
    ASSERT_EQ(program_.init_model("tiny"), 0) << output();
    program_.write("data/train.jsonl", sums(16));
    program_.write("data/test.jsonl", sums(4));
    program_.write("chat.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"1 plus 2?\"}]}\n");
    for (const char* name : {"gsm8k/train.jsonl", "gsm8k/test.jsonl"})
      program_.write(name, "{\"question\":\"1 plus 2?\",\"answer\":\"It is 3. #### 3\"}\n");
    for (const TopicPage& page : topic_pages())
      for (const Lines& block : blocks(page)) {
        if (page.name == "quickstart" && is_toml(block)) program_.write("my.toml", text_of(block));
        if (is_python(block))
          program_.write(page.name == "trackers" ? "my_tracker.py"
                         : page.name == "agents" ? "agent.py"
                                                 : "my_reward.py",
                         text_of(block));
      }
    const std::string folder = std::filesystem::path(program_.temper()).parent_path().string();
    path_ = fmt::format("PATH=$PWD/bin:{}:$PATH", folder);
    if (::getuid() == 0) path_ += " OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
  }

  /// The command with sizes that suit the tiny model. Steps are a hundredth of those that are written.
  static std::string made_small(const std::string& command) {
    static const std::regex steps("run\\.steps=([0-9]+)00");
    std::string small = std::regex_replace(command, steps, "run.steps=$1");
    if (small.find("temper generate") != std::string::npos) small += " rollout.max_new_tokens=4";
    if (small.find("my.toml") == std::string::npos) return small;
    small +=
        " rollout.prompts_per_step=2 rollout.samples_per_prompt=2 rollout.max_new_tokens=4 run.threads=1 "
        "model.context_tokens=128";
    return small.find("run.steps=") == std::string::npos ? small + " run.steps=2" : small;
  }

  std::string path_;
};

TEST_F(TopicCommands, DoWhatTheySay) {
  const bool python = program_.shell("command -v python3") == 0;
  std::map<std::string, int> started;
  for (const TopicPage& page : topic_pages())
    for (const std::string& command : commands(page)) {
      SCOPED_TRACE(fmt::format("{}: {}", page.name, command));
      if (!python && command.find("python3") != std::string::npos) continue;
      EXPECT_EQ(program_.shell(fmt::format("export {} OMPI_MCA_rmaps_base_oversubscribe=1; {}", path_,
                                           made_small(command))),
                0)
          << output();
      for (const char* program : {"temper", "mpirun", "sbatch"})
        if (command.find(program) != std::string::npos) ++started[program];
    }
  EXPECT_GE(started["temper"], 40);
  EXPECT_GE(started["mpirun"], 8);
  EXPECT_EQ(started["sbatch"], 2);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
