#include "tests/agents/live_dialogues.h"

namespace temper {
namespace {

TEST(FiveHundredDialogues, TrainWhatWasSaid) { play_dialogues(125); }

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
