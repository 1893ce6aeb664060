#pragma once
// Metrics of the rollouts of a step, over responses in order of group and sample, but for the advantages,
// which verl takes over response tokens with mask 1 (over responses their mean would always be 0 with GRPO):
//   critic/score/{mean,max,min}       raw_reward           critic/rewards/{mean,max,min}     reward
//   critic/advantages/{mean,max,min}  advantage            prompt_length/{mean,max,min}      prompt tokens
//   response_length/{mean,max,min}    all response tokens  response_length/clip_ratio        share cut at the
//   limit
//   reward/PART/mean                  each of reward_parts, where a response has it: of more than
//                                     kMaxPartNames those that most responses have
//   reward/parts_left_out             how many more there are, if there are
//   domain/...                        the same by domain, see domain_metrics
//   reward/excluded                   responses without a reward, where there are any: none of critic/ counts
//                                     them
//   reward/signal_lost                groups, where there are any, whose rewards are so far apart that their
//                                     variance is infinite and all advantages are 0
//   rollout/no_signal_share           share of groups without an advantage other than 0: all rewards alike
// A mean is the left-to-right double sum divided by the count, so a script can repeat it bit for bit; that of
// the advantages adds advantage x counted tokens of each response. What has no value has no metric.

#include <map>
#include <span>
#include <string>

#include "src/rl/types.h"

namespace temper {

/// A program that names its parts after what it scores would make a metric of each.
inline constexpr size_t kMaxPartNames = 64;

/// Domains that metrics tell apart: those of most responses.
inline constexpr size_t kMaxDomains = 64;

/// What `rollout_metrics` gives by domain, `prefix` before the domain's name; nothing of responses without
/// one:
///   DOMAIN/score/{mean,max,min}            raw_reward
///   DOMAIN/response_length/{mean,max,min,clip_ratio}
///   DOMAIN/reward/FUNCTION/mean            the reward_parts of whole functions
///   DOMAIN/responses                       how many there are
///   left_out                               how many more domains there are, if there are
std::map<std::string, double> domain_metrics(const std::string& prefix, std::span<const Group> groups);

/// Empty when there is no response.
std::map<std::string, double> rollout_metrics(std::span<const Group> groups);

}  // namespace temper
