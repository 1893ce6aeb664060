#include "src/run/plan/report/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/core/check.h"
#include "src/run/plan/memory/memory_choices.h"
#include "src/run/plan/report/sizes.h"
#include "src/run/plan/report/work.h"
#include "src/train/flops.h"

namespace temper {
namespace {

struct Card {
  const char* name;
  int64_t least_bytes;
  double read_rate;  // bytes a second that a kernel reads of its memory
};
/// The largest first.
constexpr std::array kCards{Card{"an H200", int64_t{130} << 30, 4.6e12},
                            Card{"an H100", int64_t{75} << 30, 3.0e12}};

/// A model of so many parameters trains at this share of the peak.
struct Share {
  double parameters, of_peak;
};
constexpr std::array kShares{Share{0.6e9, 0.44}, Share{1.7e9, 0.53}, Share{8.2e9, 0.58}};
constexpr double kLeast = 0.5e9, kMost = 10e9, kForwardShare = 0.6;
/// Decoding reads weights and cache at this share of the card's rate, and each layer takes its launches.
constexpr double kReadShare = 0.85, kLayerSeconds = 45e-6;

double training_share(double parameters) {
  if (parameters <= kShares.front().parameters) return kShares.front().of_peak;
  for (size_t i = 1; i < kShares.size(); ++i) {
    const Share &a = kShares[i - 1], &b = kShares[i];
    if (parameters > b.parameters) continue;
    const double at = std::log(parameters / a.parameters) / std::log(b.parameters / a.parameters);
    return a.of_peak + at * (b.of_peak - a.of_peak);
  }
  return kShares.back().of_peak;
}

bool is_measured(const RunPlan& plan) {
  constexpr int kMostGpus = 4;
  const auto parameters = static_cast<double>(plan.num_parameters);
  return plan.device == Device::cuda && !plan.adapters.on() && plan.dtype == DType::bf16 &&
         plan.num_ranks <= kMostGpus && parameters >= kLeast && parameters <= kMost &&
         std::all_of(plan.roles.begin(), plan.roles.end(),
                     [&](const RolePlan& role) { return role.dp() == plan.num_ranks; });
}

/// All sequences of a rank, as many at once as the plan has room for.
double generate_seconds(const RunPlan& plan, const ModelConfig& model, double read_rate) {
  const int64_t samples = (plan.batch.samples_per_step + plan.num_ranks - 1) / plan.num_ranks;
  const int64_t pages = (plan.lengths.longest - 1) / plan.cache.page_tokens + 1;
  const int64_t at_once =
      std::clamp<int64_t>(std::min(plan.cache.running_sequences, plan.cache.pages / pages), 1, samples);
  const double rounds = std::ceil(static_cast<double>(samples) / static_cast<double>(at_once));
  const double tokens =
      static_cast<double>(plan.lengths.max_prompt) + 0.5 * static_cast<double>(plan.lengths.max_new);
  const double token_bytes =
      static_cast<double>(plan.cache.page_bytes) / static_cast<double>(plan.cache.page_tokens);
  const double weights =
      static_cast<double>(plan.num_parameters) * static_cast<double>(dtype_size(plan.dtype));
  const double read = weights + static_cast<double>(at_once) * tokens * token_bytes;
  const double token =
      read / (kReadShare * read_rate) + kLayerSeconds * static_cast<double>(model.num_layers);
  return rounds * static_cast<double>(plan.lengths.max_new) * token;
}

}  // namespace

std::optional<StepTime> gpu_step_time(const RunPlan& plan, const ModelConfig& model, const Config& config,
                                      int64_t device_bytes) {
  const auto card = std::find_if(kCards.begin(), kCards.end(),
                                 [&](const Card& c) { return device_bytes >= c.least_bytes; });
  if (!is_measured(plan) || card == kCards.end()) return std::nullopt;
  const Work work = most_work(plan);
  const double peak = kPeakFlops * plan.num_ranks;
  const double again = config.train.recompute.granularity == "full" ? 4.0 / 3 : 1;
  StepTime time;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (work.of_row[i] == 0) continue;
    const double share = plan.rows[i].trains()
                             ? training_share(static_cast<double>(plan.num_parameters)) / again
                             : kForwardShare;
    const double seconds = plan.rows[i].generates() ? generate_seconds(plan, model, card->read_rate)
                                                    : work.of_row[i] / (share * peak);
    time.seconds += seconds;
    time.from +=
        fmt::format("{}{} {}", time.from.empty() ? "" : ", ", plan.rows[i].phase, time_text(seconds));
  }
  time.seconds += offload_seconds(plan);
  time.from += fmt::format("; of samples of full length, at rates of {}", card->name);
  return time;
}

}  // namespace temper
