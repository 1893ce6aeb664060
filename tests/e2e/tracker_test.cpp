// Programs that track a run: one that works gets each step once, in order, across starts and stops; those
// that hang, die or flood leave every bit of the run as it is without them, and hold no step up.

#include <csignal>
#include <fstream>

#include "tests/support/background.h"
#include "tests/support/digit_run.h"
#include "tests/support/same_run.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "whole"
run.steps = 8
optimizer.lr = 0.003
rollout.prompts_per_step = 2
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 1
checkpoint.every = 2
checkpoint.keep = 9
checkpoint.every_minutes = 0
validation.data = "data.jsonl"
validation.at_start = true
validation.every = 4
)";

/// It writes what it takes to $1.taken, and what it is asked to $1.seen. How it fails: "die" after each third
/// step, "hang" instead of the answer to the second, "late" once, "flood", "deaf", "lie".
const char* kTracker = R"sh(
case $2 in
  deaf) sleep 1000 ;;
  flood) head -c 100000000 /dev/zero | tr '\0' x ;;
  chatter) while :; do echo '{"step":7}'; done ;;
esac
n=0
while IFS= read -r line; do
  case $line in
    *'"type":"run"'*) step=${line#*\"has\":}; step=${step%%,*}; echo "run $step" >> $1.seen ;;
    *'"type":"sample"'*) echo sample >> $1.seen; continue ;;
    *'"type":"end"'*) echo "end ${line##*finished\":}" >> $1.seen; continue ;;
    *)
      step=${line#*\"step\":}; step=${step%%,*}
      echo "$step" >> $1.seen; n=$((n + 1))
      [ "$2" = hang ] && sleep 1000
      [ "$2" = late ] && [ ! -e $1.late ] && { touch $1.late; sleep 1000; }
      echo "$step" >> $1.taken
      ;;
  esac
  echo "{\"step\":$step}"
  [ "$2" = die ] && [ $n -eq 3 ] && exit 3
done
)sh";

class Tracking : public RunFixture {
 protected:
  void SetUp() override {
    program_.write("track.sh", kTracker);
    prepare(kConfig + digits_alone(), digit_questions(8));
  }
  static std::string train(const std::string& run, const std::string& overrides) {
    return fmt::format("train run.toml run.name={0} {1}", run, overrides);
  }
  /// One that works has time enough on a busy machine; of the others the test waits for the limit.
  static std::string tracked(const std::string& run, const std::string& how) {
    const double limit = how == "works" || how == "die" ? 30 : 0.5;
    return train(run, fmt::format("'log.command=[\"sh\",\"track.sh\",\"{}\",\"{}\"]' "
                                  "log.command_seconds={} ",
                                  run, how, limit));
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::ifstream file(program_.path(name));
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  static std::vector<std::string> steps(int last) {
    std::vector<std::string> all;
    for (int step = 0; step <= last; ++step) all.push_back(std::to_string(step));
    return all;
  }
  double sum_of(const std::string& run, const std::string& metric) const {
    double sum = 0;
    for (const Json& line : program_.metrics(run)) sum += line.at(metric).get<double>();
    return sum;
  }
};

TEST_F(Tracking, EachStepComesOnceAcrossStartsAndDeaths) {
  ASSERT_EQ(program_.run(train("whole", "")), 0) << output();
  ASSERT_EQ(program_.run(tracked("good", "works")), 0) << output();
  EXPECT_EQ(run_difference(program_, "whole", "good"), "");
  EXPECT_EQ(lines("good.taken"), steps(8));
  const std::vector<std::string> seen = lines("good.seen");
  EXPECT_EQ(seen.front(), "run -1");
  EXPECT_EQ(seen.at(1), "sample") << "before the metrics of its step";
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "sample"), 3 * 8);
  EXPECT_EQ(seen.back(), "end true}");
  EXPECT_EQ(sum_of("good", "perf/tracker_died"), 0);

  ASSERT_EQ(program_.run(tracked("good", "works")), 0) << "a run that is over: " << output();
  EXPECT_EQ(lines("good.taken"), steps(8));

  ASSERT_EQ(program_.run(tracked("dies", "die")), 0) << output();
  EXPECT_EQ(lines("dies.taken"), steps(8));
  EXPECT_TRUE(logged("dies", "the tracker sh track.sh dies die has ended"));
  EXPECT_EQ(run_difference(program_, "whole", "dies"), "");

  // A crash after step 4: steps 5 to 8 are made again, and the tracker has them.
  copy_until("good", "crashed", 4, 8);
  ASSERT_EQ(program_.run(tracked("crashed", "works")), 0) << output();
  EXPECT_EQ(lines("crashed.taken"), std::vector<std::string>{});
  std::filesystem::remove(program_.path("runs/crashed/tracker.json"));
  ASSERT_EQ(program_.run(tracked("crashed", "works")), 0) << output();
  EXPECT_EQ(lines("crashed.taken"), steps(8)) << "one that has nothing gets all";
}

TEST_F(Tracking, TheRunHasItsBitsWhateverTheTrackerDoes) {
  ASSERT_EQ(program_.run(train("whole", "")), 0) << output();
  for (const std::string how : {"hang", "late", "flood", "deaf", "chatter"}) {
    ASSERT_EQ(program_.run(tracked(how, how)), 0) << output();
    EXPECT_EQ(run_difference(program_, "whole", how), "") << how;
    EXPECT_TRUE(logged(how, "the tracker sh track.sh " + how)) << how;
    EXPECT_TRUE(how != "flood" || logged(how, "talks nonsense: a line of more than 65536 bytes"));
    const std::string lacks = how == "chatter" ? "talks nonsense" : "lacks the steps after -1";
    if (how != "late") {
      EXPECT_TRUE(logged(how, lacks)) << how;
    }
    if (how != "hang") continue;
    ASSERT_EQ(program_.run(tracked("hang", "works")), 0) << output();
    EXPECT_EQ(lines("hang.taken"), steps(8)) << "the same command gives it what it lacks";
  }
}

TEST_F(Tracking, AProgramThatDoesNotExistIsRefused) {
  for (const char* name : {"no_such_program", "./track.sh"}) {
    EXPECT_EQ(program_.run(train("none", fmt::format("'log.command=[\"{}\"]'", name))), 64);
    EXPECT_TRUE(says("log.command") && says(name)) << output();
  }
  EXPECT_FALSE(exists("runs")) << "nothing was started";
}

TEST_F(Tracking, NobodyIsLeftBehind) {
  program_.write("pid.sh", "echo $$ > pid\nsleep 1000\n");
  {
    Background job(program_, program_.temper() + " " +
                                 train("killed",
                                       "run.steps=1000000 checkpoint.every=0 "
                                       "'log.command=[\"sh\",\"pid.sh\"]'"));
    ASSERT_TRUE(job.until([&] { return steps_done("killed") > 3 && !lines("pid").empty(); })) << output();
    ::kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), 75);
  }
  const pid_t pid = std::stoi(lines("pid").front());
  for (int i = 0; i < 2000 && ::kill(pid, 0) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
