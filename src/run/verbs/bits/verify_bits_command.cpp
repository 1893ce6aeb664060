#include "src/run/verbs/bits/verify_bits_command.h"

#include "src/comm/watch/watch.h"
#include "src/core/process/progress.h"
#include "src/core/process/results.h"
#include "src/core/text/printable.h"
#include "src/core/text/short_number.h"
#include "src/io/hf/model_folder.h"
#include "src/run/host/gpu.h"
#include "src/run/host/rank_threads.h"
#include "src/run/plan/model_facts.h"
#include "src/run/record/run_log.h"

namespace temper {
namespace {

constexpr double kSilenceSeconds = 600;  // of a rank, before it counts as lost

[[noreturn]] void fail_unfit(const LayoutPair& pair, const PlanError& error) {
  const std::string legal = error.legal.empty() ? "" : "legal here: " + legal_text(error.legal) + "; ";
  fail(Exit::usage, {.what = "a pair of layouts does not fit",
                     .where = "--layouts " + pair.text,
                     .why = fmt::format("{}: {}", error.key, error.message),
                     .fix = legal + "without --layouts those are taken that fit"});
}

/// Those of --layouts, else the standard ones that the plan takes.
std::vector<LayoutPair> pairs_of(const CommandLine& line, const BitsModel& model, int ranks) {
  const ModelConfig shape = read_model_facts(model.folder);
  const auto errors = [&](const LayoutPair& pair) {
    return validate(bits_config(model, pair, shape).config, ranks, shape);
  };
  if (!line.has("--layouts"))
    return standard_pairs(ranks, [&](const LayoutPair& pair) { return errors(pair).empty(); });
  std::vector<LayoutPair> pairs = parse_layout_pairs(line.list("--layouts"));
  for (const LayoutPair& pair : pairs)
    if (const std::vector<PlanError> found = errors(pair); !found.empty()) fail_unfit(pair, found.front());
  return pairs;
}

Json as_json(const BitsFound& found) {
  return {{"layouts", found.layouts},
          {"tokens", found.tokens},
          {"differing_tokens", found.differing_tokens},
          {"differing_bits", found.differing_bits},
          {"max_difference", found.max_difference}};
}

std::string as_line(const BitsFound& found) {
  if (found.differing_bits == 0)
    return fmt::format("{}: {} tokens, no bit differs\n", found.layouts, found.tokens);
  return fmt::format("{}: {} of {} tokens differ, {} bits, by {} at most\n", found.layouts,
                     found.differing_tokens, found.tokens, found.differing_bits, found.max_difference);
}

std::string as_text(const BitsModel& model, std::span<const BitsFound> pairs, int ranks, bool ok) {
  std::string text = fmt::format("{} on {}, {}, {}; rollout:trainer\n", printable(model.folder), model.device,
                                 model.dtype, count_text(ranks, "rank"));
  for (const BitsFound& found : pairs) text += as_line(found);
  return text + (ok ? "rollout and trainer have the same bits\n"
                    : "rollout and trainer differ: a device or memory computes wrong (try other machines), "
                      "or this is a bug\n");
}

}  // namespace

int tell_bits(const BitsModel& model, std::span<const BitsFound> pairs,
              const std::optional<ProductsCost>& cost, Comm& world, bool json) {
  bool ok = true;
  Json list = Json::array();
  for (const BitsFound& found : pairs) {
    ok = ok && found.differing_tokens == 0;
    list.push_back(as_json(found));
  }
  if (world.rank() == 0)
    write_results(json ? dump_json_line({{"ok", ok},
                                         {"model", model.folder},
                                         {"device", model.device},
                                         {"dtype", model.dtype},
                                         {"ranks", world.size()},
                                         {"pairs", list},
                                         {"cost", cost_json(cost)}}) +
                             "\n"
                       : as_text(model, pairs, world.size(), ok) + cost_text(cost));
  return static_cast<int>(ok ? Exit::ok : Exit::bits);
}

int run_verify_bits(const CommandLine& line) {
  Watch watch({.limit_seconds = kSilenceSeconds, .report_file = "", .has_checkpoint = [] { return false; }});
  MpiSession mpi(nullptr, nullptr);
  const double wait_limit = watch.connect(mpi);
  const std::unique_ptr<Comm> world = mpi.make_comm_of_all(wait_limit);
  start_log("", "warn", world->rank(), /*on_stderr=*/world->rank() == 0);
  ModelFolder::open(line.text("--model"));
  const Device device = take_device(mpi, resolve_device(line.text("--device", "auto"), "--device", *world),
                                    *world, /*computes=*/true, /*shared=*/true);
  const std::unique_ptr<Comm> neighbours = mpi.make_comm_of_host(wait_limit);
  std::optional<int64_t> threads;
  if (line.has("--threads")) threads = line.integer("--threads", 1);
  const BitsModel model{.folder = line.text("--model"),
                        .device = std::string(device_name(device)),
                        .dtype = dtype_name(resolve_dtype(line.text("--dtype", "auto"), device)),
                        .threads = rank_threads(*neighbours, threads).number,
                        .seed = static_cast<uint64_t>(line.integer("--seed", 0)),
                        .allow_unused = line.list("--allow-unused")};
  std::vector<BitsFound> found;
  for (const LayoutPair& layouts : pairs_of(line, model, mpi.size())) {
    BitsPair pair(model, layouts, mpi, *world, device, wait_limit);
    pair.generate();
    found.push_back(pair.compare());
    world->barrier("a pair of layouts is done");
  }
  std::optional<ProductsCost> cost;
  if (world->rank() == 0 && model.dtype == dtype_name(DType::bf16)) {
    Backend backend(device, model.threads);
    cost = products_cost(backend.ctx(), read_model_facts(model.folder));
  }
  world->barrier("what products cost is known");
  return tell_bits(model, found, cost, *world, line.has("--json"));
}

}  // namespace temper
