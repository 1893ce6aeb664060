// What a user sees of a mistake or a failure: the exit code of the contract, and one block on stderr that
// says what, where, why and what to change. Through the program itself.

#include <fcntl.h>
#include <sys/file.h>

#include <sstream>

#include "tests/support/background.h"
#include "tests/support/run_fixture.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "r"
run.steps = 20
rollout.prompts_per_step = 5
rollout.samples_per_prompt = 3
rollout.max_new_tokens = 6
)";

using Words = std::vector<std::string>;

struct Mistake {
  std::string arguments;
  Words words;  // in the message
};

class ExitCodes : public RunFixture {
 protected:
  void SetUp() override { prepare(kConfig, sums(8)); }

  void expect_block(const Words& words, const std::string& label) const {
    for (const char* part : {"temper: ", "  where: ", "  why:   ", "  fix:   "})
      EXPECT_GE(count(part), 1) << "no \"" << part << "\" of " << label << ":\n" << output();
    for (const std::string& word : words)
      EXPECT_GE(count(word), 1) << "no \"" << word << "\" of " << label << ":\n" << output();
  }
  /// The program refuses: code, one block, nothing on stdout.
  void expect_refused(Exit code, const Mistake& mistake) const {
    EXPECT_EQ(program_.run(mistake.arguments + " > stdout.log"), static_cast<int>(code))
        << mistake.arguments << "\n"
        << output();
    expect_block(mistake.words, mistake.arguments);
    EXPECT_EQ(count("temper: "), 1) << output();
    EXPECT_EQ(program_.read("stdout.log"), "") << mistake.arguments;
  }
};

TEST_F(ExitCodes, CommandLine) {
  const Mistake mistakes[] = {
      {"trian run.toml", {"`trian`", "did you mean `train`?"}},
      {"report runs/r", {"runs/r", "does not exist"}},
      {"train", {"CONFIG"}},
      {"train run.toml --repaly x", {"--repaly", "`--replay`"}},
      {"train run.toml --replay", {"--replay FILE", "needs a value"}},
      {"check run.toml --ranks", {"--ranks N", "needs a value"}},
      {"check run.toml --ranks two", {"\"two\"", "an integer"}},
      {"score --model model", {"--input FILE", "is missing"}},
      {"generate --model model --prompt a --device gpu", {"auto|cpu|cuda"}},
      {"generate --model model --prompt a run.seed=1", {"rollout.key=value"}},
      {"generate --model model --prompt a 'rollout.stop=[\"\"]'", {"rollout.stop", "none of them empty"}},
      {"verify model", {"\"model\"", "--checkpoint DIR"}},
      {"help nothing", {"nothing", "temper help keys"}},
      {"help a b", {"a b", "temper help keys"}},
      {"help completion csh", {"csh", "bash, zsh and fish"}},
  };
  for (const Mistake& mistake : mistakes) expect_refused(Exit::usage, mistake);
}

TEST_F(ExitCodes, HelpAndVersionAreResults) {
  const Words verbs{"train", "check",  "generate", "score", "tokenize",
                    "init",  "export", "verify",   "eval",  "help"};
  Words lines{"",
              "--help",
              "-h",
              "help",
              "help exit-codes",
              "help keys",
              "help rollout",
              "help rollout.top_p",
              "--version"};
  for (const std::string& verb : verbs) lines.push_back(verb + " --help");
  for (const std::string& line : lines) {
    EXPECT_EQ(program_.run(line + " > stdout.log"), 0) << line;
    EXPECT_EQ(output(), "") << line;
    EXPECT_GT(program_.read("stdout.log").size(), 60u) << line;
  }
  program_.run("help > stdout.log");
  for (const std::string& verb : verbs)
    EXPECT_NE(program_.read("stdout.log").find("\n  " + verb + " "), std::string::npos) << verb;
  program_.run("help exit-codes > stdout.log");
  for (const char* code : {"64", "65", "70", "73", "74", "75", "76", "77", "78"})
    EXPECT_NE(program_.read("stdout.log").find(code), std::string::npos) << code;
  program_.run("--version > stdout.log");
  for (const char* part : {"temper, commit", "compiler: g++", "CUDA:", "driver:", "cuBLASLt:", "NCCL:",
                           "MPI:", "HDF5:", "PCRE2:", "utf8proc:", "xxHash:", "MHD:", "fmt:", "glibc:"})
    EXPECT_NE(program_.read("stdout.log").find(part), std::string::npos) << part;
}

TEST_F(ExitCodes, VersionNamesEveryLibraryThatIsLoaded) {
  ASSERT_EQ(program_.run("--version > version.log"), 0);
  const std::string version = program_.read("version.log");
  ASSERT_EQ(program_.shell("ldd " + program_.temper()), 0);
  std::istringstream lines(output());
  int libraries = 0;
  for (std::string link, arrow, path, address; lines >> link;) {  // "libm.so.6 => /lib/libm.so.6 (0x7f...)"
    if (!(lines >> arrow) || arrow != "=>") continue;
    lines >> path >> address;
    const std::string file = std::filesystem::canonical(path).filename().string();
    EXPECT_NE(version.find(file), std::string::npos) << file << " is not in: " << version;
    ++libraries;
  }
  EXPECT_GE(libraries, 8) << output();
}

TEST_F(ExitCodes, ConfigsAndPathsAreRefusedBeforeAnythingStarts) {
  const Mistake mistakes[] = {
      {"train none.toml", {"none.toml", "No such file"}},
      {"train 'x\x1b[2Jy\xff.toml'", {"x\\x1b[2Jy\\xff.toml"}},
      {"train run.toml run.stepz=5", {"run.stepz (command line)", "did you mean `run.steps`?"}},
      {"train run.toml run.steps=ten", {"run.steps", "\"ten\" is a string", "an integer"}},
      {"train run.toml run.name=../x", {"run.name", "plain folder name"}},
      {"train run.toml run.steps=0 optimizer.lr=-1", {"2 errors", "run.steps", "optimizer.lr"}},
      {"train run.toml roles.trainer.ep=2", {"roles.trainer.ep", "the model has no experts"}},
      {"train run.toml roles.trainer.tp=2", {"roles.trainer.tp", "do not divide into groups of 2"}},
      {"train run.toml train.samples_per_update=7", {"train.samples_per_update", "15", "7"}},
      {"train run.toml roles.trainer.ranks=0-3", {"roles.trainer.ranks", "0-3"}},
      {"train run.toml rollout.max_new_tokens=256", {"rollout.max_new_tokens", "256"}},
      {"train run.toml rollout.prompts_per_step=100000000", {"rollout.prompts_per_step", "this machine's"}},
      {"train run.toml model.path=none", {"model.path", "none does not exist"}},
      {"train run.toml data.train=none.jsonl", {"data.train", "none.jsonl"}},
      {"train run.toml checkpoint.resume=none/x", {"checkpoint.resume", "none/x"}},
      {"eval run.toml", {"validation.data", "nothing to evaluate"}},
      {"generate --model none --prompt x", {"none"}},
      {"score --model none --input data.jsonl", {"none", "does not exist"}},
      {"score --model model --input none.jsonl", {"none.jsonl"}},
      {"tokenize --tokenizer none --input data.jsonl", {"none"}},
      {"init --config none.json --out new", {"none.json"}},
      {"export --checkpoint none --out new", {"none", "does not exist"}},
      {"verify --checkpoint none", {"none", "does not exist"}},
  };
  for (const Mistake& mistake : mistakes) expect_refused(Exit::usage, mistake);
  EXPECT_FALSE(exists("runs"));
  EXPECT_FALSE(exists("new"));
  EXPECT_EQ(program_.run_ranks(2, "train run.toml run.stepz=5"), static_cast<int>(Exit::usage));
  EXPECT_EQ(count("run.stepz (command line)"), 1) << "two ranks tell it twice: " << output();
  EXPECT_EQ(program_.run_ranks(2, "train run.toml train.samples_per_update=7"),
            static_cast<int>(Exit::usage));
  expect_block({"train.samples_per_update"}, "a plan for two ranks");
  EXPECT_FALSE(exists("runs"));
}

TEST_F(ExitCodes, CudaWithoutADriver) {
#ifndef TEMPER_CUDA
  GTEST_SKIP() << "this build has no CUDA";
#endif
  if (path_exists("/dev/nvidiactl")) GTEST_SKIP() << "a driver is here";
  expect_refused(Exit::environment,
                 {"train run.toml run.device=cuda", {"run.device = \"cuda\"", "no driver"}});
}

TEST_F(ExitCodes, CudaInABuildWithoutIt) {
#ifdef TEMPER_CUDA
  GTEST_SKIP() << "this build has CUDA";
#endif
  expect_refused(Exit::environment, {"train run.toml run.device=cuda", {"run.device = \"cuda\"", "no CUDA"}});
  for (const char* verb : {"generate --model model --prompt x", "score --model model --input data.jsonl"})
    expect_refused(Exit::environment, {std::string(verb) + " --device cuda", {"no CUDA", "use cpu or auto"}});
}

TEST_F(ExitCodes, DataLines) {
  const std::pair<const char*, Words> lines[] = {
      {R"({"prompt":"x", "answer")", {"invalid JSON"}},
      {R"({"prompt":"x","prompt":"y","answer":"1"})", {"invalid JSON", "prompt"}},
      {R"({"prompt":7,"answer":"1"})", {"\"prompt\"", "it is a number"}},
      {R"({"question":"x","answer":"1"})",
       {"no text \"prompt\"", "keys of the line: \"question\", \"answer\""}},
      {R"([{"prompt":"x",)", {"begins an array", "jq -c"}},
      {" { ", {"goes on in the next line", "jq -c . FILE"}},
      {R"({"prompt":"x","answer":"many"})", {"arithmetic", "\"many\""}},
      {R"({"prompt":"x"})", {"arithmetic", "answer"}},
      {R"({"prompt":"x","answer":[]})", {"arithmetic", "[] is neither", "a list of some"}},
      {R"({"prompt":"x","answer":{"target":4}})", {"arithmetic", R"({"target":4} is neither)"}},
      {R"({"prompt":"x","answer":[4,[5]]})", {"arithmetic", "[4,[5]] is neither"}},
      {R"({"prompt":"x","answer":["4","many"]})", {"arithmetic", "\"many\""}},
      {"{\"prompt\":\"\xff\",\"answer\":\"1\"}", {"UTF-8"}},
  };
  for (auto [line, words] : lines) {
    program_.write("bad.jsonl", sums(2) + line + "\n" + sums(5));
    words.push_back("bad.jsonl:3");
    expect_refused(Exit::data, {"train run.toml data.train=bad.jsonl", words});
  }
  program_.write("bad.jsonl", " \n\n");
  expect_refused(Exit::data, {"train run.toml data.train=bad.jsonl", {"bad.jsonl", "no lines"}});
  const Mistake others[] = {
      {"score --model model --input data.jsonl", {"data.jsonl:1", "\"tokens\"", "the key is missing"}},
      {"tokenize --tokenizer model --input data.jsonl", {"data.jsonl:1", "\"text\""}},
      {"tokenize --chat --tokenizer model --input data.jsonl", {"data.jsonl:1", "\"messages\""}},
      {"score --model model --input ids.jsonl", {"ids.jsonl:1", "6400", "0 to 6399"}},
      {"generate --model model --prompts ids.jsonl", {"ids.jsonl:1", "6400", "0 to 6399"}},
  };
  program_.write("ids.jsonl", "{\"tokens\":[1,6400]}\n");
  for (const Mistake& mistake : others) expect_refused(Exit::data, mistake);
}

TEST_F(ExitCodes, ModelFolders) {
  const std::string config = program_.read("model/config.json"),
                    weights = program_.read("model/model.safetensors"),
                    tokenizer = program_.read("model/tokenizer.json");
  const std::string not_a_number = std::string("\x00\x00\xc0\x7f", 4);
  std::string other_size = config;
  other_size.replace(other_size.find("\"hidden_size\": 32"), 17, "\"hidden_size\": 48");
  const std::tuple<const char*, std::string, Words> broken[] = {
      {"config.json", "{\"a\":", {"config.json", "invalid JSON"}},
      {"config.json", "{}", {"config.json"}},
      {"config.json", other_size, {"model.embed_tokens.weight", "48"}},
      {"model.safetensors", weights.substr(0, weights.size() / 2), {"model.safetensors", "truncated"}},
      {"model.safetensors",
       weights.substr(0, weights.size() - 4) + not_a_number,
       {"not finite", "model.norm.weight"}},
      {"tokenizer.json", tokenizer.substr(0, 1000), {"tokenizer.json", "parse error"}},
      {"tokenizer.json", "{}", {"tokenizer.json"}},
  };
  for (const auto& [file, content, words] : broken) {
    std::filesystem::remove_all(program_.path("bad"));
    std::filesystem::copy(program_.path("model"), program_.path("bad"));
    program_.write(std::string("bad/") + file, content);
    expect_refused(Exit::data, {"train run.toml model.path=bad", words});
  }
  std::filesystem::remove(program_.path("bad/model.safetensors"));
  expect_refused(Exit::data, {"score --model bad --input data.jsonl", {"bad", "safetensors"}});
}

TEST_F(ExitCodes, RunFolders) {
  expect_refused(Exit::busy, {"train run.toml run.dir=data.jsonl", {"data.jsonl/r", "run.dir"}});
  std::filesystem::create_directories(program_.path("runs/log/logs/rank-0000.log"));
  expect_refused(Exit::busy, {"train run.toml run.name=log", {"rank-0000.log", "a folder is in the place"}});
  ASSERT_EQ(program_.run("train run.toml run.steps=1"), 0) << output();
  expect_refused(Exit::usage, {"train run.toml checkpoint.resume=none", {"runs/r", "run.overwrite"}});
  const int lock = ::open(program_.path("runs/r/owner.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  expect_refused(Exit::busy, {"train run.toml", {"runs/r", "in use", "pid "}});
  EXPECT_EQ(program_.run_ranks(2, "train run.toml"), static_cast<int>(Exit::busy));
  expect_block({"in use"}, "two ranks");
  ::close(lock);
}

/// What is there and is not what it should be.
TEST_F(ExitCodes, FoldersThatLackSomething) {
  std::filesystem::create_directories(program_.path("cut/checkpoints/step-000003"));
  program_.write("cut/checkpoints/step-000003/rank-0000.h5", "");
  std::filesystem::create_directories(program_.path("bare"));
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(program_.path(std::string("model/") + file), program_.path("bare"));
  const Mistake mistakes[] = {
      {"verify --checkpoint model", {"model", "no checkpoint here", "neither a manifest.json"}},
      {"verify --checkpoint cut", {"step-000003", "it has no manifest.json", "the save was cut"}},
      {"verify --checkpoint cut/checkpoints/step-000003", {"it has no manifest.json", "the save was cut"}},
      {"export --checkpoint model --out new", {"no checkpoint here"}},
      {"tokenize --tokenizer bare --input data.jsonl", {"bare/tokenizer.json", "no tokenizer"}},
      {"generate --model bare --prompt x", {"bare/tokenizer.json", "no tokenizer"}},
      {"train run.toml model.path=bare", {"bare/tokenizer.json", "no tokenizer", "tokenizer.path"}},
      {"train run.toml tokenizer.path=bare", {"bare/tokenizer.json", "no tokenizer"}},
  };
  for (const Mistake& mistake : mistakes) expect_refused(Exit::data, mistake);
}

TEST_F(ExitCodes, JsonOfEveryError) {
  const std::pair<const char*, Exit> mistakes[] = {{"verify --json --checkpoint none", Exit::usage},
                                                   {"verify --json --checkpoint model", Exit::data},
                                                   {"verify --json", Exit::usage},
                                                   {"check --json", Exit::usage},
                                                   {"check none.toml --json", Exit::usage},
                                                   {"check data.jsonl --json", Exit::usage},
                                                   {"check run.toml --json run.stepz=1", Exit::usage},
                                                   {"check run.toml --json --ranks x", Exit::usage}};
  for (const auto& [arguments, code] : mistakes) {
    EXPECT_EQ(program_.run(std::string(arguments) + " > stdout.log"), static_cast<int>(code)) << arguments;
    const Json json = parse_json(program_.read("stdout.log"), arguments);
    EXPECT_EQ(json.at("ok"), false) << arguments;
    EXPECT_GE(json.at("errors").size(), 1u) << arguments;
    EXPECT_NE(json.at("errors")[0].at("message"), "") << arguments;
  }
}

/// The digest of the weights is said, kept, and held against model.digest and a changed folder.
TEST_F(ExitCodes, OtherWeights) {
  ASSERT_EQ(program_.run("train run.toml run.steps=1"), 0) << output();
  const std::string before = "weights of digest ";
  const size_t at = output().find(before);
  ASSERT_NE(at, std::string::npos) << output();
  const std::string digest = output().substr(at + before.size(), 32);
  EXPECT_EQ(program_.json_lines(checkpoint("r", 1) + "/manifest.json")[0].at("meta").at("model_digest"),
            digest);
  EXPECT_EQ(program_.run_ranks(2, "train run.toml run.steps=1 run.name=two model.digest=" + digest), 0)
      << output();
  const std::string other(32, '0');
  expect_refused(Exit::data, {"train run.toml run.name=three model.digest=" + other, {digest, other}});
  std::string weights = program_.read("model/model.safetensors");
  weights[weights.size() - 4] ^= 1;  // a bit of a fraction
  program_.write("model/model.safetensors", weights);
  expect_refused(Exit::data,
                 {"train run.toml run.name=three model.digest=" + digest, {"model.digest", digest}});
  expect_refused(Exit::usage,
                 {"train run.toml run.steps=2", {"changed since", digest, "checkpoint.accept_changes"}});
  EXPECT_EQ(program_.run("train run.toml run.steps=2 checkpoint.accept_changes=true"), 0) << output();
  int told = 0;
  for (const Json& event : program_.json_lines("runs/r/events.jsonl"))
    told += event.value("key", "") == "digest of the weights" && event.at("before") == digest ? 1 : 0;
  EXPECT_EQ(told, 1) << program_.read("runs/r/events.jsonl");
}

TEST_F(ExitCodes, EndTokensOutsideOfTheVocabulary) {
  program_.write("model/generation_config.json", "{\"eos_token_id\": [2, 6400]}");
  ASSERT_EQ(program_.run("train run.toml run.steps=1"), 0) << output();
  EXPECT_EQ(count("eos_token_id 6400"), 1) << output();
  ASSERT_EQ(program_.run("generate --model model --prompt x rollout.max_new_tokens=1 > stdout.log"), 0)
      << output();
  EXPECT_EQ(count("eos_token_id 6400"), 1) << output();
}

/// A step that finished no prompt leaves an empty file, which a replay takes as that; but some have to be
/// full.
TEST_F(ExitCodes, EmptyRolloutFiles) {
  program_.write("empty.jsonl", "");
  expect_refused(Exit::data, {"train run.toml --replay empty.jsonl", {"empty.jsonl", "nothing to train on"}});
  EXPECT_FALSE(exists("runs/r"));
  ASSERT_EQ(program_.run("train run.toml run.steps=2 train.last_partial=keep rollout.tokens_per_step=4"), 0)
      << output();
  ASSERT_EQ(rollouts("r", 1), "");
  ASSERT_NE(rollouts("r", 2), "");
  EXPECT_EQ(program_.run("train run.toml run.name=again train.last_partial=keep --replay " +
                         rollout_file("r", 1) + " " + rollout_file("r", 2)),
            0)
      << output();
  EXPECT_TRUE(says("is empty: nothing is trained in step 1")) << output();
}

/// The learning rate is absurd: weight decay alone multiplies the weights by -99 in each step.
TEST_F(ExitCodes, NumbersThatAreNotFinite) {
  const std::string sft =
      "train run.toml algorithm.name=sft rollout.samples_per_prompt=1 train.samples_per_update=5 ";
  EXPECT_EQ(program_.run_ranks(2, sft + "optimizer.lr=1000 optimizer.grad_clip=0"),
            static_cast<int>(Exit::numerics))
      << output();
  expect_block({"not finite", "step ", "nonfinite/"}, "a loss");
  EXPECT_EQ(count("training stopped before the update"), 1) << output();
  for (int rank : {0, 1})  // one decision: both say it in their logs, and rank 0 on stderr
    EXPECT_NE(program_.read(fmt::format("runs/r/logs/rank-{:04d}.log", rank)).find("not finite"),
              std::string::npos);
  const std::vector<std::string> dumps = list_directory(program_.path("runs/r/nonfinite"));
  ASSERT_EQ(dumps.size(), 1u);
  const std::string dump = program_.read("runs/r/nonfinite/" + dumps[0]);
  EXPECT_EQ(std::count(dump.begin(), dump.end(), '\n'), 5) << "samples of both ranks";
  const int64_t done = std::ssize(program_.metrics("r"));
  EXPECT_EQ(dumps[0], fmt::format("step-{:06d}.jsonl", done + 1))
      << "the step after the last one that was recorded";
  EXPECT_FALSE(exists("runs/r/checkpoints")) << "broken weights were saved";
  EXPECT_EQ(program_.run(sft + "run.name=again --replay runs/r/nonfinite/" + dumps[0]), 0) << output();
}

/// Loss and gradient of every update are finite; what the last one made is not.
TEST_F(ExitCodes, WeightsThatAreNotFiniteAreNotCommitted) {
  const std::string sft =
      "train run.toml algorithm.name=sft rollout.samples_per_prompt=1 train.samples_per_update=5 "
      "checkpoint.every=1 checkpoint.keep=1 ";
  EXPECT_EQ(program_.run_ranks(2, sft + "optimizer.weight_decay=1e25 optimizer.lr=1"),
            static_cast<int>(Exit::numerics))
      << output();
  expect_block({"not finite", "param/", "last good checkpoint", "nonfinite/"}, "weights");
  const std::vector<std::string> saved = list_directory(program_.path("runs/r/checkpoints")),
                                 dumps = list_directory(program_.path("runs/r/nonfinite"));
  EXPECT_EQ(saved, std::vector<std::string>{"step-000001"}) << "the good one stays, and nothing half made";
  ASSERT_EQ(dumps, std::vector<std::string>{"step-000002.jsonl"});
  EXPECT_EQ(program_.run("verify --checkpoint runs/r"), 0) << output();
  EXPECT_EQ(program_.run(sft + "run.name=again --replay runs/r/nonfinite/" + dumps[0]), 0) << output();
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they take terabytes of addresses
TEST_F(ExitCodes, MemoryThatIsNotThere) {
  const std::string limited = "ulimit -d 1000000; " + program_.temper() + " train run.toml ";
  EXPECT_EQ(program_.shell(limited + "rollout.kv_memory=2GiB"), static_cast<int>(Exit::storage)) << output();
  expect_block({"out of host memory: KV cache", "phase load", "bytes more are wanted beside 0 that are held",
                "lower rollout.kv_memory",
                "; planned for rank 0 in its largest phase, train:", "kv_cache              2.00 GiB"},
               "a cache that is too large");
}
#endif

/// The folder goes away under the run. Whatever rank 0 writes next fails, and nobody waits for it.
TEST_F(ExitCodes, AVanishedRunFolder) {
  const std::string endless =
      "train run.toml run.steps=1000000 checkpoint.every=1 cluster.watchdog_seconds=100000 run.name=";
  const auto vanish = [&](const std::string& name, const std::function<void()>& make_vanish) {
    Background job(program_, program_.mpirun(2, endless + name));
    const std::string first = "runs/" + name + "/checkpoints/step-000001/manifest.json";
    ASSERT_TRUE(job.until([&] { return exists(first); })) << output();
    make_vanish();
    EXPECT_EQ(job.wait(), static_cast<int>(Exit::storage)) << output();
    expect_block({"temper: rank "}, name);
  };
  vanish("moved", [&] { std::filesystem::rename(program_.path("runs/moved"), program_.path("gone")); });
  vanish("removed", [&] {
    std::error_code busy;  // the run may be making files in it at this moment
    while (exists("runs/removed/owner.lock")) std::filesystem::remove_all(program_.path("runs"), busy);
  });
}

/// Each call of fail() in the sources names all four parts.
TEST(ErrorBlocks, AreWhole) {
  int64_t calls = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("src")) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
    const std::string text = read_file(entry.path().string(), 1 << 20);
    const std::string call = "fail(";
    for (size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
      const size_t open = text.find('{', at), end = text.find(");", at);
      if (open > end || text.find(".what", open) > end) continue;  // a declaration, or parts made elsewhere
      size_t close = open;
      for (int depth = 0; close < text.size(); ++close) {
        depth += (text[close] == '{') - (text[close] == '}');
        if (depth == 0) break;
      }
      const std::string block = text.substr(open, close - open);
      ++calls;
      for (const char* part : {".what = ", ".where = ", ".why = ", ".fix = "})
        EXPECT_NE(block.find(part), std::string::npos) << entry.path() << " lacks " << part << "in\n"
                                                       << block;
    }
  }
  EXPECT_GT(calls, 100);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
