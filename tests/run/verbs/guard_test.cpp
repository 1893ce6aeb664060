// Where errors end: what fails beside the error that is reported changes neither its message nor its code.

#include "src/run/verbs/guard.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <thread>

#include "src/core/helpers/helpers.h"
#include "src/core/process/out_of_memory.h"
#include "src/core/process/progress.h"
#include "src/core/region.h"
#include "src/run/roles/rollout_role.h"
#include "src/run/roles/train_role.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

TEST(Guard, AFullDiskUnderTheLogDoesNotHideTheError) {
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>("/dev/full");
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("temper", sink));
  ::testing::internal::CaptureStderr();
  const int code = run_guarded([]() -> int { fail(Exit::storage, {.what = "no space", .where = "a file"}); });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, static_cast<int>(Exit::storage));
  EXPECT_NE(said.find("temper: no space\n  where: a file\n"), std::string::npos) << said;
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(""));
}

/// A limit on addresses (`ulimit -v`) is met by whoever asks next: a region, or the stack of a thread.
TEST(Guard, ALimitOfAddressesIsAShortageOfMemory) {
  const auto limited = [](const std::function<void()>& use) {
    ::testing::internal::CaptureStderr();
    rlimit before{};
    ::getrlimit(RLIMIT_AS, &before);
    const rlimit none{0, before.rlim_max};
    const int code = run_guarded([&]() -> int {
      ::setrlimit(RLIMIT_AS, &none);
      use();
      return 0;
    });
    ::setrlimit(RLIMIT_AS, &before);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, static_cast<int>(Exit::storage)) << said;
    EXPECT_NE(said.find("out of host memory"), std::string::npos) << said;
    EXPECT_NE(said.find("`ulimit`"), std::string::npos) << said;
  };
  limited([] { Region(Device::cpu, MemoryUse::any).grow_to(1); });
  limited([] { std::thread([] {}).join(); });
}

TEST(Guard, AKeeperThatIsLostAsksForTheRunAgainWhereItCanGoOn) {
  const auto lose = [](bool has_checkpoint) {
    retry_after_loss(
        []() -> int { throw KeeperLost({.what = "the keeper has ended", .where = "here", .why = "killed"}); },
        [=] { return has_checkpoint; });
  };
  enter_phase(RolloutRole::kPhase, 2);
  expect_error(Exit::retry, {"the keeper has ended"}, "with a checkpoint", [&] { lose(true); });
  expect_error(Exit::environment, {"the keeper has ended"}, "without one", [&] { lose(false); });
  enter_phase(Phase::load);
  expect_error(Exit::environment, {"the keeper has ended"}, "at the start", [&] { lose(true); });
}

/// What was planned stands behind the reason, of a library's shortage, too; other errors are as they were.
TEST(Guard, AShortageOfMemoryShowsWhatWasPlanned) {
  const auto run = [](const std::function<int()>& body) {
    return tell_of_planned(body, [](std::string_view phase) { return fmt::format("planned in {}", phase); });
  };
  enter_phase(RolloutRole::kPhase, 2);
  expect_error(Exit::storage, {"no room", "all is taken; planned in generate"}, "a part", [&] {
    run([]() -> int { throw OutOfMemory({.what = "no room", .where = "here", .why = "all is taken"}); });
  });
  enter_phase(TrainRole::kPhase, 2);
  expect_error(Exit::storage, {"out of host memory", "; planned in train"}, "a library",
               [&] { run([]() -> int { throw std::bad_alloc(); }); });
  expect_error(Exit::storage, {"disk"}, "another one", [&] {
    run([]() -> int { fail(Exit::storage, {.what = "disk", .where = "there", .why = "full"}); });
  });
  EXPECT_EQ(run([] { return 75; }), 75);
}

/// The keys stand in the block that ends the program, before what core knows.
TEST(Guard, AShortageOfMemoryNamesTheKeysOfItsUse) {
  const std::pair<MemoryUse, std::vector<const char*>> uses[] = {
      {MemoryUse::weights, {"run.dtype", "roles.reference.offload"}},
      {MemoryUse::gradients, {"train.offload.optimizer", "train.recompute.granularity"}},
      {MemoryUse::optimizer, {"optimizer.state", "optimizer.master"}},
      {MemoryUse::activations, {"train.recompute.granularity", "train.max_tokens_per_microbatch"}},
      {MemoryUse::cache, {"rollout.kv_memory"}},
      {MemoryUse::scratch, {"train.max_tokens_per_microbatch", "rollout.prefill_chunk_tokens"}},
      {MemoryUse::any, {"train.max_tokens_per_microbatch", "rollout.kv_memory"}}};
  for (const auto& [use, keys] : uses) {
    ::testing::internal::CaptureStderr();
    const int code = run_guarded([use = use]() -> int {
      throw OutOfMemory(out_of_memory({.use = use, .wanted = 2}).problem(), use);
    });
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, static_cast<int>(Exit::storage));
    for (const char* key : keys) EXPECT_NE(said.find(key), std::string::npos) << key << ": " << said;
    EXPECT_NE(said.find("; `temper check` shows"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
