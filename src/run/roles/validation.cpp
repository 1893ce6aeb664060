#include "src/run/roles/validation.h"

#include <algorithm>
#include <filesystem>

#include "src/rl/trajectory_bytes.h"
#include "src/run/plan/run_options.h"

namespace temper {
namespace {

std::map<std::string, double> set_metrics(const std::string& name, const std::vector<Group>& groups) {
  double sum = 0, high = -1e300, low = 1e300, tokens = 0, cut = 0, samples = 0, rewarded = 0, passed = 0;
  size_t per_prompt = 1;
  for (const Group& g : groups) {
    bool pass = false;
    per_prompt = std::max(per_prompt, g.samples.size());
    for (const Trajectory& t : g.samples) {
      tokens += static_cast<double>(t.response.tokens.size());
      cut += t.response.finish == FinishReason::length;
      samples += 1;
      if (t.excluded) continue;
      rewarded += 1;
      sum += t.raw_reward;
      high = std::max(high, t.raw_reward);
      low = std::min(low, t.raw_reward);
      pass = pass || t.raw_reward >= 1.0;
    }
    passed += pass;
  }
  const std::string prefix = "val/" + name + "/";
  std::map<std::string, double> m{{prefix + "response_length/mean", tokens / samples},
                                  {prefix + "response_length/clip_ratio", cut / samples}};
  if (rewarded > 0) {
    m[prefix + "score/mean"] = sum / rewarded;
    m[prefix + "score/max"] = high;
    m[prefix + "score/min"] = low;
  }
  if (per_prompt > 1)
    m[prefix + fmt::format("pass@{}", per_prompt)] = passed / static_cast<double>(groups.size());
  return m;
}

}  // namespace

Validation::Validation(const Parts& parts) : p_(parts) {
  const Config& c = p_.config;
  for (const DataSource& source : c.validation.data) {
    PromptStream stream({source}, c.data, c.run.seed, p_.maker.tokenizer, p_.chat,
                        {.max_prompt_tokens = p_.plan.validation_max_prompt_tokens});
    Set set{std::filesystem::path(source.path).stem().string(), stream.all(c.validation.max_prompts),
            items()};
    digests_.push_back(stream.digests().front());
    for (DrawnPrompt& p : set.prompts) p.position += kFirstPosition;
    sets_.push_back(std::move(set));
  }
}

size_t Validation::items() const {
  return sets_.empty() ? 0 : sets_.back().first + sets_.back().prompts.size();
}

Validation::Item Validation::item(size_t number) const {
  const auto set =
      std::find_if(sets_.rbegin(), sets_.rend(), [&](const Set& s) { return s.first <= number; });
  return {set->name, number - set->first, set->prompts.at(number - set->first)};
}

GenerateOptions Validation::options(int64_t version) const {
  const ValidationConfig& v = p_.config.validation;
  GenerateOptions o = rollout_options(p_.config, p_.plan, p_.model, p_.maker.tokenizer);
  o.max_new_tokens = p_.plan.validation_max_new_tokens;
  o.version = version;
  if (v.temperature) o.sampling.temperature = *v.temperature;
  if (v.top_k) o.sampling.top_k = static_cast<int32_t>(*v.top_k);
  if (v.top_p) o.sampling.top_p = *v.top_p;
  if (v.min_p) o.sampling.min_p = *v.min_p;
  return o;
}

std::optional<std::vector<Group>> Validation::generate(const Set& set, int64_t version,
                                                       const Record& record) {
  std::vector<Group> mine;
  for (size_t i = set.first; i < std::min(record.before.size(), set.first + set.prompts.size()); ++i)
    mine.push_back(record.before[i]);
  GroupMaker maker(p_.maker, options(version), p_.stops);
  for (size_t i = 0; i < set.prompts.size(); ++i)
    if (p_.portion.has(static_cast<int64_t>(i)) && set.first + i >= record.begun)
      maker.add({set.prompts[i]}, p_.config.validation.samples_per_prompt);
  while (!maker.done())
    for (Group& g : maker.next().scored) {
      const auto prompt = std::ranges::lower_bound(set.prompts, position_of(g), {}, &DrawnPrompt::position);
      const auto index = prompt - set.prompts.begin();
      for (Trajectory& t : g.samples) t.group = static_cast<int32_t>(index);
      if (record.made) record.made(set.first + static_cast<size_t>(index), g);
      mine.push_back(std::move(g));
    }
  if (p_.maker.team.leads()) p_.maker.rewards.end_step();
  if (p_.comm.all_reduce_max(maker.was_cut() ? 1.0 : 0.0, "validation that was cut, max over ranks") > 0)
    return std::nullopt;
  std::vector<Group> all;
  for (const std::string& part :
       p_.comm.all_gather(groups_to_bytes(mine), "validation groups, copied to all ranks"))
    for (Group& g : groups_from_bytes(part)) all.push_back(std::move(g));
  std::sort(all.begin(), all.end(),
            [](const Group& a, const Group& b) { return a.samples.front().group < b.samples.front().group; });
  return all;
}

std::optional<Validation::Result> Validation::run(int64_t version, const Record& record) {
  Result result;
  for (const Set& set : sets_) {
    std::optional<std::vector<Group>> groups = generate(set, version, record);
    if (!groups) return std::nullopt;
    result.metrics.merge(set_metrics(set.name, *groups));
    std::move(groups->begin(), groups->end(), std::back_inserter(result.groups));
  }
  return result;
}

bool ValidationRole::phase(int64_t step) {
  if (step % every_ != 0 && step != last_step_) return true;
  enter_phase(kPhase, step);
  if (loss_) {
    const std::optional<std::map<std::string, double>> losses = loss_->run();
    if (!losses) return false;
    journal_.add(*losses);
  }
  if (validation_) {
    const std::optional<Validation::Result> result = validation_->run(step, {});
    if (!result) return false;
    journal_.add(result->metrics);
    journal_.write_groups("validation", result->groups, step);
  }
  journal_.add(memory_.metrics("validation"));
  return true;
}

std::unique_ptr<Role> make_validation_role(const RoleParts& p) {
  const Config& config = p.task.config();
  const RunPlan& plan = p.task.plan;
  const auto stops = [&end = p.end] {
    end.look();
    return end.after().has_value();
  };
  std::optional<HeldOutLoss::Parts> loss;
  if (plan.validates_loss)
    loss.emplace(config, plan, p.ctx, p.model(), p.all_ranks(), p.model_share.mesh->control(Axis::dp),
                 pass_options(config, plan, *p.role), p.model_share.pipeline, *p.tokenizer, p.chat, stops);
  std::optional<Validation::Parts> generated;
  if (plan.validates)
    generated.emplace(config, plan, p.all_ranks(), p.portion,
                      GroupMaker::Parts{p.ctx, p.engine(), *p.tokenizer, *p.rewards, p.model_share.team},
                      p.model().config(), p.chat, stops);
  return std::make_unique<ValidationRole>(loss, generated, p.journal, p.memory, config.validation.every,
                                          p.task.last_step());
}

}  // namespace temper
