#include "src/run/roles/validation.h"

#include <algorithm>

#include "src/config/sets/validation_sets.h"
#include "src/rl/rollout_metrics.h"
#include "src/rl/trajectory_bytes.h"
#include "src/rl/trajectory_json.h"
#include "src/rl/validation_metrics.h"
#include "src/run/plan/run_options.h"

namespace temper {

Json Validation::line_of(const Trajectory& t, int64_t step, const std::string& set) {
  Json line = trajectory_to_json(t, step);
  line["set"] = set;
  return line;
}

Validation::Validation(const Parts& parts) : p_(parts) {
  const std::vector<ValidationSet>& sets = p_.config.validation.data;
  for (size_t i = 0; i < sets.size(); ++i)
    if (const ValidationLengths& lengths = p_.plan.validation.sets.at(i); lengths.max_new > 0)
      add_set(sets[i], lengths);
}

void Validation::add_set(const ValidationSet& config, const ValidationLengths& lengths) {
  const Config& c = p_.config;
  Set set{.name = name_of(config),
          .samples = samples_of(config, c),
          .options = sampling_options(rollout_of(config, c), p_.model, &p_.maker.tokenizer, c.run.seed,
                                      lengths.max_new),
          .first = items()};
  if (!config.rewards.empty())
    set.own_rewards = std::make_unique<RewardSet>(rewards_of(config, c), p_.helpers);
  PromptStream stream({{config.path}}, c.data, c.run.seed, p_.maker.tokenizer, p_.chat,
                      {.max_prompt_tokens = lengths.max_prompt,
                       .vocab_size = p_.plan.vocab_size,
                       .media_token_ids = p_.plan.media_token_ids,
                       .harnesses = c.rollout.harness});
  set.prompts = stream.all(c.validation.max_prompts, [&](const Prompt& prompt, const std::string& where) {
    rewards_of_set(set).check_answer(prompt.answer, where, prompt.domain);
  });
  digests_.push_back(stream.digests().front());
  for (DrawnPrompt& p : set.prompts) p.position += kFirstPosition;
  sets_.push_back(std::move(set));
  open_sessions(sets_.back(), lengths);
}

/// Each set has sampling and lengths of its own, and so a server of its own.
void Validation::open_sessions(Set& set, const ValidationLengths& lengths) const {
  set.rollout = p_.config.rollout;
  set.rollout.server.port = 0;
  if (set.rollout.harness.empty() || !p_.maker.team.leads()) return;
  set.sessions = std::make_unique<SessionHost>(
      SessionHost::Parts{.rollout = set.rollout,
                         .chat_arguments = p_.config.data.chat_arguments,
                         .tokenizer = p_.maker.tokenizer,
                         .chat = *p_.chat,
                         .helpers = *p_.helpers,
                         .sampling = set.options,
                         .context_tokens = lengths.max_prompt + lengths.max_new});
}

size_t Validation::items() const {
  return sets_.empty() ? 0 : sets_.back().first + sets_.back().prompts.size();
}

Validation::Item Validation::item(size_t number) const {
  const auto set =
      std::find_if(sets_.rbegin(), sets_.rend(), [&](const Set& s) { return s.first <= number; });
  return {set->name, number - set->first, set->prompts.at(number - set->first), set->samples};
}

std::optional<std::vector<Group>> Validation::generate(const Set& set, int64_t version,
                                                       const Record& record) {
  std::vector<Group> mine;
  for (size_t i = set.first; i < std::min(record.before.size(), set.first + set.prompts.size()); ++i)
    mine.push_back(record.before[i]);
  const GroupMaker::Parts parts{
      p_.maker.ctx,  p_.maker.engine,    p_.maker.tokenizer,          rewards_of_set(set),
      p_.maker.team, set.sessions.get(), !set.rollout.harness.empty()};
  GenerateOptions options = set.options;
  options.version = version;
  GroupMaker maker(parts, options, p_.stops);
  for (size_t i = 0; i < set.prompts.size(); ++i)
    if (p_.portion.has(static_cast<int64_t>(i)) && set.first + i >= record.begun)
      maker.add({set.prompts[i]}, set.samples);
  while (!maker.done())
    for (Group& g : maker.next().scored) {
      const auto prompt = std::ranges::lower_bound(set.prompts, position_of(g), {}, &DrawnPrompt::position);
      const auto index = prompt - set.prompts.begin();
      std::erase_if(g.samples, [](const Trajectory& t) { return t.is_fork(); });  // a session counts once
      for (Trajectory& t : g.samples) t.group = static_cast<int32_t>(index);
      if (record.made) record.made(set.first + static_cast<size_t>(index), g);
      mine.push_back(std::move(g));
    }
  if (p_.maker.team.leads()) parts.rewards.end_step();
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
    const RewardSet& rewards = rewards_of_set(set);
    AnswerOf answer_of;
    if (rewards.reads_answers()) answer_of = [&](const Trajectory& t) { return rewards.answer_in(t); };
    const std::string prefix = "val/" + set.name + "/";
    result.metrics.merge(validation_metrics(prefix, *groups, set.samples, answer_of));
    result.metrics.merge(domain_metrics(prefix + "domain/", *groups));
    result.sets.push_back({set.name, *std::move(groups)});
  }
  return result;
}

void ValidationRole::write(const Validation::Result& result, int64_t step) {
  std::string lines;
  for (const auto& [set, groups] : result.sets)
    for (const Group& group : groups)
      for (const Trajectory& t : group.samples)
        lines += dump_json_line(Validation::line_of(t, step, set)) + "\n";
  journal_.add(result.metrics);
  journal_.write_lines("validation", lines, step);
}

bool ValidationRole::phase(int64_t step) {
  if (!is_due(step)) return true;
  enter_phase(kPhase, step);
  if (loss_) {
    const std::optional<std::map<std::string, double>> losses = loss_->run();
    if (!losses) return false;
    journal_.add(*losses);
  }
  if (validation_) {
    const std::optional<Validation::Result> result = validation_->run(step, {});
    if (!result) return false;
    write(*result, step);
  }
  journal_.add(memory_.metrics("validation"));
  return true;
}

void ValidationRole::require_unchanged_files(const InputDigests& inputs) const {
  const auto require = [&](const std::vector<FileDigest>& read) {
    for (const FileDigest& file : read) require_unchanged(inputs, "validation.data", file);
  };
  if (loss_) require(loss_->digests());
  if (validation_) require(validation_->digests());
}

std::unique_ptr<Role> make_validation_role(const RoleParts& p) {
  const Config& config = p.task.config();
  const RunPlan& plan = p.task.plan;
  const auto stops = [&end = p.end] {
    end.look();
    return end.after().has_value();
  };
  std::optional<HeldOutLoss::Parts> loss;
  if (plan.validation.loss)
    loss.emplace(config, plan, p.ctx, p.model(), p.all_ranks(), p.model_share.mesh->control(Axis::dp),
                 pass_options(config, plan, *p.role), p.model_share.pipeline, *p.tokenizer, p.chat, stops);
  std::optional<Validation::Parts> generated;
  if (plan.validation.generates)
    generated.emplace(config, plan, p.all_ranks(), p.portion,
                      Validation::Maker{p.ctx, p.engine(), *p.tokenizer, p.rewards, p.model_share.team},
                      p.model().config(), p.chat, stops, p.task.helpers);
  auto role = std::make_unique<ValidationRole>(loss, generated, p.journal, p.memory, config.validation.every,
                                               p.lead.last_step);
  role->require_unchanged_files(p.inputs);
  return role;
}

}  // namespace temper
