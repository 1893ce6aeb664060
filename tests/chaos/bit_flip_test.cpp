// Any bit of a checkpoint that changes is found, and the file that has it is named.

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

class BitFlips : public ChaosRun {
 protected:
  /// What reading the checkpoint says about it; empty: it is sound.
  static std::string told(const std::string& checkpoint) {
    try {
      std::string text;
      for (const Damage& d : verify_checkpoint(checkpoint)) text += fmt::format("{}: {}\n", d.file, d.reason);
      return text;
    } catch (const Error& e) {
      return e.code() == Exit::data ? e.what() : fmt::format("code {}", static_cast<int>(e.code()));
    }
  }
};

TEST_F(BitFlips, AreFoundAndTheFileIsNamed) {
  const Scenario& s = kScenarios[2];  // one that holds steps ahead and unfinished groups, too
  const std::string folder = program_.path(checkpoint(whole(s), kChaosSteps - 1));
  const std::map<std::string, std::string> files = files_below(folder);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files) names.push_back(name);
  ASSERT_EQ(names.size(), 3u);
  const auto one = [&](int64_t number, Draw& draw) -> std::string {
    const std::string copy = program_.path(fmt::format("flipped-{}", number));
    const std::string& name = draw.from(names);
    const int64_t bit = draw.below(8 * static_cast<int64_t>(files.at(name).size()));
    make_directories(copy);
    for (const auto& [file, bytes] : files) {
      std::ofstream out(join_path(copy, file), std::ios::binary);
      if (file != name) {
        out << bytes;
        continue;
      }
      std::string changed = bytes;
      changed[static_cast<size_t>(bit / 8)] =
          static_cast<char>(changed[static_cast<size_t>(bit / 8)] ^ (1 << bit % 8));
      out << changed;
    }
    const std::string text = told(copy);
    remove_tree(copy);
    return text.find(name) != std::string::npos ? "" : fmt::format("bit {} of {}: \"{}\"", bit, name, text);
  };
  run_cases(chaos_count(500, 10000), one);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
