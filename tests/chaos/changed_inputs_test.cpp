// Inputs that are other ones under their paths when a killed run goes on: each is refused by its name and
// nothing is written; with the inputs put back, or lying elsewhere, the run is the one that nothing happened
// to.

#include <optional>
#include <sstream>

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

/// A change of a file: its new content, from the old one. Empty: it is gone.
struct Change {
  const char* name;
  std::string file;
  std::function<std::string(const std::string& old, Draw&)> content;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(text.substr(at, end + 1 - at));
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

/// Another digit in the place of one: data and settings stay what they are to a parser.
std::string with_another_digit(const std::string& old, Draw& draw) {
  std::string text = old;
  std::vector<size_t> digits;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] >= '1' && text[i] <= '8') digits.push_back(i);
  text[draw.from(digits)] ^= 1;  // 1 and 0, 2 and 3, ...
  return text == old ? old + "\n" : text;
}

const std::vector<Change>& changes() {
  static const std::vector<Change> kChanges = {
      {"a digit", "data.jsonl", with_another_digit},
      {"a row more", "data.jsonl",
       [](const std::string& old, Draw& draw) {
         const std::vector<std::string> lines = lines_of(old);
         return old + draw.from(lines);
       }},
      {"a row less", "data.jsonl",
       [](const std::string& old, Draw& draw) {
         std::vector<std::string> lines = lines_of(old);
         lines.erase(lines.begin() + draw.below(std::ssize(lines)));
         return joined(lines);
       }},
      {"two rows in each other's place", "data.jsonl",
       [](const std::string& old, Draw& draw) {
         std::vector<std::string> lines = lines_of(old);
         const auto at = static_cast<size_t>(draw.below(std::ssize(lines) - 1));
         std::swap(lines[at], lines[at + 1]);
         return joined(lines);
       }},
      {"another rope", "model/config.json",
       [](const std::string& old, Draw&) {
         std::string text = old;
         return text.replace(text.find("10000.0"), 7, "20000.0");
       }},
      {"a template", "model/chat_template.jinja",
       [](const std::string&, Draw&) { return std::string("{{ messages[0].content }}"); }},
      {"other defaults", "model/generation_config.json",
       [](const std::string&, Draw&) { return std::string(R"({"eos_token_id": 5})"); }},
      {"other settings", "model/tokenizer_config.json",
       [](const std::string& old, Draw&) { return old + " "; }},
      {"no settings", "model/tokenizer_config.json", [](const std::string&, Draw&) { return std::string(); }},
      {"another tokenizer", "model/tokenizer.json", [](const std::string& old, Draw&) { return old + "\n"; }},
  };
  return kChanges;
}

class ChangedInputs : public ChaosRun {
 protected:
  void SetUp() override {
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 1);  // the others end at once
    ChaosRun::SetUp();
  }
  /// The inputs of one case, in a folder of its own.
  std::string inputs_of(const std::string& run) const {
    const std::string folder = "inputs-" + run;
    make_directories(program_.path(folder));
    for (const char* name : {"model", "data.jsonl"})
      std::filesystem::copy(program_.path(name), program_.path(join_path(folder, name)),
                            std::filesystem::copy_options::recursive);
    return folder;
  }
  static std::string overrides(const std::string& folder) {
    return fmt::format(" model.path={0}/model data.train={0}/data.jsonl", folder);
  }
  int start(const Scenario& s, const std::string& run, const std::string& more) const {
    Background job(program_, command(s, run) + more, log_of(run));
    return job.wait();
  }
  /// Ends it when it has saved `step`; the exit code where it came to its end before.
  std::optional<int> kill_after(const Scenario& s, const std::string& run, const std::string& more,
                                int64_t step) const {
    Background job(program_, command(s, run) + more, log_of(run));
    const bool runs = job.until([&] { return newest_step(run) >= step; });
    const std::map<int, pid_t> ranks = runs ? job.ranks() : std::map<int, pid_t>{};
    if (runs) ::kill(job.pid(), SIGKILL);
    for (const auto& [number, process] : ranks) ::kill(process, SIGKILL);
    wait_until_gone(job);
    return runs ? std::nullopt : std::optional(job.wait());
  }
  /// The command while somebody else writes to `file`, just before the file call of that number on it; 0:
  /// nobody does, and all calls are written down.
  std::string beside_a_writer(const std::string& file, int64_t call, const std::string& arguments) const {
    const std::string shim =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fault_shim.so").string();
    return fmt::format(
        "env ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD={} TEMPER_FAULT_ROOT={} "
        "TEMPER_FAULT=APPEND TEMPER_FAULT_CALL={} TEMPER_FAULT_LOG={}.calls {} {}",
        shim, file, call, file, program_.temper(), arguments);
  }
  /// The run ends where it opens the file for the last time: it is another one than when the run began.
  void expect_change_is_seen(const std::string& file, const std::string& arguments) const {
    ASSERT_EQ(program_.shell(beside_a_writer(file, 0, arguments + " run.name=calls")), 0) << output();
    int64_t last_open = 0;
    std::istringstream calls(program_.read(file + ".calls"));
    for (std::string line; std::getline(calls, line);)
      if (line.find(" open ") != std::string::npos) last_open = std::stoll(line);
    ASSERT_GT(last_open, 1);
    EXPECT_EQ(program_.shell(beside_a_writer(file, last_open, arguments + " run.name=written")), 65)
        << output();
    EXPECT_TRUE(says("a file was changed while the run that reads it was under way")) << output();
    EXPECT_TRUE(says(", " + file + "\n")) << output();
    for (const char* run : {"runs/calls", "runs/written"}) remove_tree(program_.path(run));
  }
  void place(const std::string& path, const std::string& content) const {
    if (content.empty())
      std::filesystem::remove(program_.path(path));
    else
      program_.write(path, content);
  }
  /// Metrics, config, checkpoints: what a refused start leaves alone.
  std::map<std::string, std::string> kept(const std::string& run) const {
    std::map<std::string, std::string> files = files_below(program_.path("runs/" + run));
    std::erase_if(files, [](const auto& file) {
      return file.first.starts_with("logs/") || file.first == "events.jsonl" || file.first == "owner.lock" ||
             file.first.starts_with(".") || file.first.find(".tmp") != std::string::npos;
    });
    return files;
  }
};

TEST_F(ChangedInputs, AreSeenWhenTheRunGoesOn) {
  const auto one = [&](int64_t number, Draw& draw) -> std::string {
    const Scenario& s = draw.from(kScenarios);
    const Change& change = changes()[static_cast<size_t>(number) % changes().size()];
    const std::string run = fmt::format("changed-{}", number), folder = inputs_of(run);
    const std::string fault = fmt::format("{}, {} in {}", s.name, change.name, change.file);
    const auto code_of_first = kill_after(s, run, overrides(folder), 1 + draw.below(kChaosSteps - 1));
    if (code_of_first.value_or(0) != 0 || newest_step(run) == 0)
      return fmt::format("{}: the first start: {}", fault, printed(run));
    const std::string path = join_path(folder, change.file);
    const std::string old = exists(path) ? program_.read(path) : "";
    const std::map<std::string, std::string> before = kept(run);
    place(path, change.content(old, draw));
    if (const int code = start(s, run, overrides(folder)); code != 64)
      return fmt::format("{}: ended with {}: {}", fault, code, printed(run));
    if (printed(run).find(path) == std::string::npos)
      return fmt::format("{} is not named: {}", fault, printed(run));
    if (const std::string name = first_difference(before, kept(run)); !name.empty())
      return fmt::format("{}: a refused start left its mark: {}", fault, name);
    place(path, old);
    const std::string elsewhere = draw.below(2) == 0 ? "" : inputs_of(run + "-moved");
    if (const int code = start(s, run, overrides(elsewhere.empty() ? folder : elsewhere)); code != 0)
      return fmt::format("{}: with all as it was it ended with {}: {}", fault, code, printed(run));
    const std::string difference = run_difference(program_, whole(s), run);
    for (const std::string& name : {"runs/" + run, mpi_of(run), folder, elsewhere})
      if (!name.empty()) remove_tree(program_.path(name));
    return difference.empty() ? "" : fmt::format("{}: it is another run: {}", fault, difference);
  };
  run_cases(chaos_count(2, 200), one);
}

/// Between the digest and what is made of the file.
TEST_F(ChangedInputs, AreSeenWhileTheRunIsUnderWay) {
  const std::string held_out = "train run.toml run.steps=1 validation.every=1 validation.data=held.jsonl";
  program_.write("held.jsonl", sums(5));
  expect_change_is_seen("held.jsonl", held_out);
  expect_change_is_seen("held.jsonl", held_out + " " + kScenarios[std::size(kScenarios) - 1].overrides);
  ASSERT_EQ(program_.run("train run.toml run.steps=1 run.name=made"), 0) << output();
  for (const char* name : {"first.jsonl", "second.jsonl"}) program_.write(name, rollouts("made", 1));
  expect_change_is_seen("second.jsonl", "train run.toml --replay first.jsonl second.jsonl");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
