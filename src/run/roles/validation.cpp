#include "src/run/roles/validation.h"

#include <algorithm>
#include <filesystem>

#include "src/rl/trajectory_bytes.h"
#include "src/run/roles/prompt_work.h"

namespace temper {
namespace {

std::map<std::string, double> set_metrics(const std::string& name, const std::vector<Group>& groups) {
  double sum = 0, high = -1e300, low = 1e300, tokens = 0, cut = 0, samples = 0, passed = 0;
  size_t per_prompt = 1;
  for (const Group& g : groups) {
    bool pass = false;
    per_prompt = std::max(per_prompt, g.samples.size());
    for (const Trajectory& t : g.samples) {
      sum += t.raw_reward;
      high = std::max(high, t.raw_reward);
      low = std::min(low, t.raw_reward);
      tokens += static_cast<double>(t.response.tokens.size());
      cut += t.response.finish == FinishReason::length;
      samples += 1;
      pass = pass || t.raw_reward >= 1.0;
    }
    passed += pass;
  }
  const std::string prefix = "val/" + name + "/";
  std::map<std::string, double> m{{prefix + "score/mean", sum / samples},
                                  {prefix + "score/max", high},
                                  {prefix + "score/min", low},
                                  {prefix + "response_length/mean", tokens / samples},
                                  {prefix + "response_length/clip_ratio", cut / samples}};
  if (per_prompt > 1)
    m[prefix + fmt::format("pass@{}", per_prompt)] = passed / static_cast<double>(groups.size());
  return m;
}

}  // namespace

Validation::Validation(Services& services, Engine& engine, const ChatTemplate* chat_template)
    : s_(services), engine_(engine), rewards_(services.config().reward) {
  const Config& c = s_.config();
  for (const DataSource& source : c.validation.data) {
    PromptStream stream({source}, c.data, c.run.seed, *s_.tokenizer, chat_template,
                        {.max_prompt_tokens = s_.plan.validation_max_prompt_tokens});
    sets_.push_back(
        {std::filesystem::path(source.path).stem().string(), stream.all(c.validation.max_prompts)});
  }
}

GenerateOptions Validation::options(int64_t version) const {
  const ValidationConfig& v = s_.config().validation;
  GenerateOptions o = generate_options(s_);
  o.max_new_tokens = s_.plan.validation_max_new_tokens;
  o.version = version;
  if (v.temperature) o.sampling.temperature = *v.temperature;
  if (v.top_k) o.sampling.top_k = static_cast<int32_t>(*v.top_k);
  if (v.top_p) o.sampling.top_p = *v.top_p;
  if (v.min_p) o.sampling.min_p = *v.min_p;
  return o;
}

std::vector<Group> Validation::generate(const Set& set, int64_t version) {
  std::vector<Request> requests;
  std::vector<size_t> which;
  for (size_t i = static_cast<size_t>(s_.dp->rank()); i < set.prompts.size();
       i += static_cast<size_t>(s_.dp->size())) {
    requests.push_back({kFirstPosition + set.prompts[i].position, set.prompts[i].prompt.tokens,
                        static_cast<int32_t>(s_.config().validation.samples_per_prompt)});
    which.push_back(i);
  }
  std::vector<Group> mine, all;
  engine_.generate(
      s_.ctx, requests, options(version), s_.tokenizer, [&](size_t i, std::vector<Response> responses) {
        const DrawnPrompt& p = set.prompts[which[i]];
        Group g = to_group({p}, std::move(responses));
        for (Trajectory& t : g.samples) {
          t.data_position = requests[i].data_position;
          t.group = static_cast<int32_t>(which[i]);
          rewards_.score(t, *p.record);
        }
        mine.push_back(std::move(g));
        s_.journal.status(
            fmt::format("validation {}: {}/{} prompts of this rank", set.name, mine.size(), requests.size()));
      });
  for (const std::string& part :
       s_.dp->all_gather(groups_to_bytes(mine), "validation groups, copied to all ranks"))
    for (Group& g : groups_from_bytes(part)) all.push_back(std::move(g));
  std::sort(all.begin(), all.end(),
            [](const Group& a, const Group& b) { return a.samples.front().group < b.samples.front().group; });
  return all;
}

std::map<std::string, double> Validation::run(int64_t step) {
  std::map<std::string, double> metrics;
  std::vector<Group> everything;
  for (const Set& set : sets_) {
    std::vector<Group> groups = generate(set, step);
    metrics.merge(set_metrics(set.name, groups));
    std::move(groups.begin(), groups.end(), std::back_inserter(everything));
  }
  s_.journal.add(metrics);
  s_.journal.write_groups("validation", everything, step);
  return metrics;
}

}  // namespace temper
