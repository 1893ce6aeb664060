// Runs that are saved under one layout of the trainer and go on under another: the same weights, the same
// responses with the same log-probs, and with the state of the optimizer the update of the undisturbed run.

#include <map>

#include "tests/e2e/layout_run.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

struct Change {
  Placement from, to;
  bool deep;

  std::string name() const { return from.name + "-" + to.name; }
  std::string keys() const {
    return kSmall + (deep ? kDeepModel : "") + "run.dtype=fp64 run.steps=2 checkpoint.export_hf_every=2";
  }
};

Placement of(const std::string& name, int ranks, const std::string& keys) {
  std::string roles;
  for (size_t at = 0; at < keys.size();) {
    const size_t end = std::min(keys.find(' ', at), keys.size());
    roles += "roles.trainer." + keys.substr(at, end - at) + " ";
    at = end + 1;
  }
  return {name, ranks, roles};
}

const Change kChanges[] = {
    {of("tp2pp2dp2", 8, "tp=2 pp=2"), of("cp2dp2", 4, "cp=2"), true},
    {of("cp2pp2", 4, "cp=2 pp=2"), of("tp4", 4, "tp=4"), true},
    {of("dp3zero2", 3, "zero=2"), of("pp2", 2, "pp=2"), false},
    {of("tp2cp2", 4, "tp=2 cp=2"), of("dp2pp2zero2", 4, "pp=2 zero=2"), false},
    {of("pp5", 5, "pp=5"), of("tp2dp2zero2", 4, "tp=2 zero=2"), true},
    {of("cp4zero2", 4, "cp=4 zero=2"), of("one", 1, ""), false},
};

class LayoutChange : public LayoutRun {
 protected:
  /// Doubles, of the newest checkpoint, whose layout does not matter to who exports.
  std::string exported(const std::string& run) const {
    EXPECT_EQ(program_.run(fmt::format("export --checkpoint runs/{0} --out out-{0} --dtype fp64", run)), 0)
        << output();
    return "out-" + run + "/model.safetensors";
  }
};

TEST_F(LayoutChange, StateOfOneLayoutIsThatOfAnother) {
  std::vector<Run> whole, after_one, after_two;
  for (const Change& c : kChanges) whole.push_back({c.from, 0, c.from.name, c.keys()});
  ASSERT_EQ(train_each(whole), 0) << output();
  for (const Change& c : kChanges) {
    copy_until(c.from.name, c.name(), 1, 2);
    after_one.push_back({c.to, 0, c.name(), c.keys()});
  }
  ASSERT_EQ(train_each(after_one), 0) << output();
  std::map<std::string, std::string> weights_of_two;
  for (const Change& c : kChanges) {
    const std::string &from = c.from.name, to = c.name();
    EXPECT_TRUE(rollouts(to, 2) == rollouts(from, 2)) << to << ": other weights after step 1";
    EXPECT_EQ(program_.metrics(to)[1].at("actor/rollout_logprob_diff_max").get<double>(), 0.0) << to;
    EXPECT_LE(difference(exported(to), exported(from)), 1e-9) << to;
    weights_of_two[from] = weights(from, 2);
    std::filesystem::remove_all(program_.path("runs/" + from + "/export"));
    after_two.push_back({c.to, 0, from, c.keys()});
  }
  ASSERT_EQ(train_each(after_two), 0) << output();
  for (const auto& [from, kept] : weights_of_two) EXPECT_TRUE(weights(from, 2) == kept) << from;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
