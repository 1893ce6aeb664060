#include "src/run/verbs/bits/bits_pair.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/core/process/progress.h"
#include "src/core/rng.h"
#include "src/rl/trajectory_bytes.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/run_options.h"
#include "src/run/roles/rollout_role.h"
#include "src/run/roles/train_role.h"

namespace temper {
namespace {

constexpr int64_t kNewTokens = 32;
constexpr int32_t kSamples = 2;
/// Around multiples of what kernels and caches cut by; the last ones lie on both sides of the first border at
/// which attention splits its keys.
constexpr int64_t kPromptLengths[] = {1, 2, 7, 16, 17, 33, 64, 100, 257, 512, 1000, 1100};
constexpr int64_t kRunning = 7, kChunk = 48;       // fewer than there are, and no multiple of a length
constexpr int64_t kCacheBytes = int64_t{4} << 30;  // of a GPU

constexpr const char* kText =
    "A farmer has 17 sheep, and all but 9 run away. How many are left? Think step by step, then give the "
    "number alone on the last line.\n\nLet f(x) = 3x^2 - 2x + 1. What is f(4)? Ein Zug fährt um 8:15 ab und "
    "kommt nach 2 h 50 min an. Wann? def add(a, b):\n    return a + b\n";

/// How tokens are drawn, and how the trainer packs them.
struct Way {
  double temperature;
  int64_t top_k;
  double top_p;
  bool smallest_batches;
};
constexpr Way kWays[] = {{1.0, 0, 1.0, false}, {0.6, 40, 0.95, true}};

int64_t new_tokens(int64_t context) { return std::min(kNewTokens, context / 2); }

std::vector<int64_t> prompt_lengths(int64_t context) {
  std::vector<int64_t> lengths;
  for (const int64_t length : kPromptLengths)
    lengths.push_back(std::min(length, context - new_tokens(context)));
  return lengths;
}

std::vector<int32_t> random_prompt(uint64_t seed, size_t number, int64_t length, int64_t vocab_size) {
  std::vector<int32_t> ids(static_cast<size_t>(length));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(stream_words(seed, RngStream::data_order, static_cast<uint32_t>(i),
                                               static_cast<uint32_t>(number), 0)[0] %
                                  static_cast<uint64_t>(vocab_size));
  return ids;
}

/// Ids of kText that the model has; none without a tokenizer.
std::vector<int32_t> text_ids(const std::string& folder, int64_t vocab_size) {
  std::vector<int32_t> ids;
  if (has_tokenizer(folder)) ids = Tokenizer::load(folder).encode(kText, /*add_special=*/false);
  std::erase_if(ids, [&](int32_t id) { return id >= vocab_size; });
  return ids;
}

void count_differences(BitsFound& found, const std::vector<double>& sampled,
                       const std::vector<double>& trained) {
  CHECK(sampled.size() == trained.size(), "{} log-probs of {} tokens", trained.size(), sampled.size());
  found.tokens += std::ssize(sampled);
  for (size_t i = 0; i < sampled.size(); ++i) {
    const int bits = std::popcount(std::bit_cast<uint64_t>(sampled[i]) ^ std::bit_cast<uint64_t>(trained[i]));
    if (bits == 0) continue;
    ++found.differing_tokens;
    found.differing_bits += bits;
    found.max_difference = std::max(found.max_difference, std::fabs(sampled[i] - trained[i]));
  }
}

}  // namespace

LoadedConfig bits_config(const BitsModel& model, const LayoutPair& pair, const ModelConfig& shape) {
  LoadedConfig loaded;
  Config& c = loaded.config;
  const int64_t context = shape.max_position_embeddings;
  const std::vector<int64_t> lengths = prompt_lengths(context);
  c.run.name = "verify-bits";
  c.run.steps = 1;
  c.run.seed = model.seed;
  c.run.device = model.device;
  c.run.dtype = model.dtype;
  c.model.path = model.folder;
  c.model.allow_unused = model.allow_unused;
  c.rollout.prompts_per_step = std::ssize(lengths);
  c.rollout.samples_per_prompt = kSamples;
  c.rollout.max_prompt_tokens = *std::max_element(lengths.begin(), lengths.end());
  c.rollout.max_new_tokens = new_tokens(context);
  c.rollout.max_running_sequences = kRunning;
  c.rollout.prefill_chunk_tokens = kChunk;
  if (model.device == "cuda") c.rollout.kv_memory_bytes = kCacheBytes;
  c.optimizer.lr = 1e-6;  // nothing is trained: what a config needs
  c.reward.functions = {{.name = "exact"}};
  set_layouts(c.roles, pair);
  return loaded;
}

BitsPair::BitsPair(const BitsModel& model, const LayoutPair& pair, const MpiSession& mpi, Comm& world,
                   Device device, double wait_limit)
    : of_(model),
      text_(pair.text),
      loaded_(bits_config(model, pair, read_model_facts(model.folder))),
      plan_(make_plan(loaded_, mpi.size(), read_run_models(loaded_.config))),
      task_{.loaded = loaded_, .plan = plan_, .wait_limit_seconds = wait_limit},
      world_(world),
      placement_(place_roles(task_, built_in_roles(), mpi.rank())),
      meshes_(mpi, plan_, device, wait_limit),
      mailbox_(mpi.make_mailbox(wait_limit)),
      end_(*mailbox_, placement_.ranks),
      weights_(*mailbox_, weight_routes(task_, placement_.ranks), task_.lag(), end_),
      host_(device, plan_.dtype, model.threads),
      models_(loaded_.config, plan_, meshes_, host_, memory_, mpi.rank()) {
  enter_phase(Phase::load);
  trained_ = &models_.of(plan_.trainer());
  generating_ = &models_.of(*plan_.generator());
  enter_phase(Phase::sync);
  weights_.connect(&trained_->parameters(), &generating_->parameters());
  weights_.publish(host_.ctx(), trained_->parameters(), 0);
  weights_.receive(host_.ctx(), generating_->parameters(), &trained_->parameters(), 0);
  weights_.wait_read();
  weights_.disconnect();
  world_.barrier("weights of a pair of layouts are read");
}

std::vector<Request> BitsPair::requests() const {
  const int64_t vocab_size = generating_->config().vocab_size;
  const std::vector<int32_t> text = text_ids(of_.folder, vocab_size);
  std::vector<Request> all;
  for (const int64_t length : prompt_lengths(plan_.lengths.context)) {
    const size_t number = all.size();
    std::vector<int32_t> ids = random_prompt(of_.seed, number, length, vocab_size);
    if (number % 2 == 1 && !text.empty())
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = text[(number + i) % text.size()];
    all.push_back({std::ssize(all), std::move(ids), kSamples});
  }
  return all;
}

void BitsPair::generate() {
  enter_phase(RolloutRole::kPhase);
  const RolePlan& role = *plan_.generator();
  const std::vector<Request> all = requests();
  std::vector<Request> mine;
  for (size_t i = 0; i < all.size(); ++i)
    if (std::cmp_equal(i % static_cast<size_t>(role.teams()), role.team_number(world_.rank())))
      mine.push_back(all[i]);
  for (const Way& way : kWays) {
    RolloutConfig section = loaded_.config.rollout;
    section.temperature = way.temperature;
    section.top_k = way.top_k;
    section.top_p = way.top_p;
    const GenerateOptions options =
        sampling_options(section, generating_->config(), nullptr, of_.seed, plan_.lengths.max_new);
    std::vector<Group> groups(mine.size());
    const auto keep = [&](size_t i, std::vector<Response> responses) {
      for (size_t k = 0; k < responses.size(); ++k) {
        Trajectory& t = groups[i].samples.emplace_back();
        t.data_position = mine[i].data_position;
        t.sample = static_cast<int32_t>(k);
        t.prompt_tokens = mine[i].prompt;
        t.response = std::move(responses[k]);
      }
    };
    models_.engine(role).generate(host_.ctx(), mine, options, nullptr, keep);
    groups_.push_back(gather(groups));
  }
  models_.suspend_engines();
  host_.ctx().scratch.trim(host_.ctx().lane);
}

/// What all ranks generated, on each of them.
std::vector<Group> BitsPair::gather(const std::vector<Group>& mine) {
  const bool leads = meshes_.share_of(*plan_.generator()).team.leads();
  std::vector<Group> all;
  for (const std::string& bytes :
       world_.all_gather(leads ? groups_to_bytes(mine) : groups_to_bytes({}), "responses of all ranks"))
    for (Group& group : groups_from_bytes(bytes)) all.push_back(std::move(group));
  return all;
}

BitsFound BitsPair::compare() {
  enter_phase(TrainRole::kPhase);
  const RolePlan& role = plan_.trainer();
  const ModelShare share = meshes_.share_of(role);
  BitsFound found{.layouts = text_};
  for (size_t i = 0; i < groups_.size(); ++i) {
    const std::vector<const Trajectory*> all = in_order(groups_[i]);
    PassOptions options = pass_options(loaded_.config, plan_, role);
    options.temperature = kWays[i].temperature;
    if (kWays[i].smallest_batches) {
      options.token_budget = plan_.least_budget() * role.cp();
      options.least_of_stages = 0;
    }
    const auto logprobs =
        packed_logprobs(host_.ctx(), *trained_, share.mesh->control(Axis::dp), all, options, share.pipeline);
    for (size_t k = 0; k < all.size(); ++k) count_differences(found, all[k]->response.logprobs, logprobs[k]);
  }
  const auto most = [&](double mine) { return world_.all_reduce_max(mine, "what differs, max over ranks"); };
  found.differing_tokens = static_cast<int64_t>(most(static_cast<double>(found.differing_tokens)));
  found.differing_bits = static_cast<int64_t>(most(static_cast<double>(found.differing_bits)));
  found.max_difference = most(found.max_difference);
  return found;
}

}  // namespace temper
