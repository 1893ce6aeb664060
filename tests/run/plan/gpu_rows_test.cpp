// What ran on a GPU is a row of its own in the timeline, in the time of the other rows.

#include "src/core/file.h"
#include "src/run/record/trace.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

using GpuRows = OnRanks;

TEST_F(GpuRows, AreThreadsOfTheRank) {
  Trace trace(5, {2});
  trace.spans(1, "GPU", {{"not asked for", 0.1, 0.2}});
  trace.spans(2, "GPU", {{"micro-batch, rows 300", 0.5, 0.75}, {"optimizer, update 2", 0.75, 0.8}});
  trace.span(2, "trainer", "update 1 of step 2", trace.now());
  trace.write(*comm_, folder_ + "/trace");
  const std::string file = folder_ + "/trace/step-000002.json";
  int spans = 0, names = 0;
  const Json timeline = parse_json(read_file(file, 1 << 20), file);
  for (const Json& event : timeline.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 5);
    const std::string name = event.at("name");
    EXPECT_NE(name, "not asked for");
    if (name == "process_name") continue;
    const bool row = name == "thread_name" && event.at("args").at("name") == "GPU";
    if (name == "micro-batch, rows 300") {
      EXPECT_EQ(event.at("ts"), 500000.0);
      EXPECT_EQ(event.at("dur"), 250000.0);
    } else if (name != "optimizer, update 2" && !row) {
      EXPECT_NE(event.at("tid"), 3) << name;
      continue;
    }
    EXPECT_EQ(event.at("tid"), 3) << name;
    names += row;
    spans += !row;
  }
  EXPECT_EQ(spans, 2);
  EXPECT_EQ(names, 1);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }
