#include "src/run/record/metrics/part_names.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/text/file_lines.h"

namespace temper {
namespace {

constexpr const char* kPartsLeftOut = "reward/parts_left_out";
constexpr const char* kDomainsLeftOut = "domain/left_out";
constexpr std::string_view kResponses = "responses";
constexpr int64_t kMaxLine = int64_t{1} << 30;

bool is_part(const std::string& name) { return name.starts_with("reward/") && name.ends_with("/mean"); }

/// domain/NAME/ of the metric that each domain has; empty: it is another one.
std::string domain_of(const std::string& name) {
  if (!name.starts_with("domain/") || !name.ends_with("/responses")) return "";
  return name.substr(0, name.size() - kResponses.size());
}

/// What a domain has, behind its name; another one's name may begin with it.
bool is_of_domain(std::string_view rest) {
  static constexpr std::string_view kOwn[] = {kResponses,
                                              "score/mean",
                                              "score/max",
                                              "score/min",
                                              "response_length/mean",
                                              "response_length/max",
                                              "response_length/min",
                                              "response_length/clip_ratio"};
  if (std::find(std::begin(kOwn), std::end(kOwn), rest) != std::end(kOwn)) return true;
  return rest.starts_with("reward/") && rest.ends_with("/mean") &&
         std::count(rest.begin(), rest.end(), '/') == 2;
}

/// Takes a name among the known ones, while there are fewer than `most`. False: it is one too many.
bool take(std::set<std::string>& known, const std::string& name, size_t most) {
  if (known.contains(name)) return true;
  return known.size() < most && known.insert(name).second;
}

}  // namespace

PartNames::PartNames(const std::string& metrics_file) {
  if (!path_exists(metrics_file)) return;
  for_each_line(metrics_file, kMaxLine, [&](const std::string& text, int64_t) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) return;
    for (const auto& [name, value] : line.items()) {
      if (is_part(name)) take(parts_, name, kMaxPartNamesOfARun);
      if (const std::string domain = domain_of(name); !domain.empty())
        take(domains_, domain, kMaxDomainsOfARun);
    }
  });
}

std::string PartNames::limit(std::map<std::string, double>& metrics) {
  const std::string parts = limit_parts(metrics), domains = limit_domains(metrics);
  return parts + (parts.empty() || domains.empty() ? "" : "\n") + domains;
}

std::string PartNames::limit_parts(std::map<std::string, double>& metrics) {
  std::vector<std::string> beyond;
  for (const auto& [name, value] : metrics)
    if (is_part(name) && !take(parts_, name, kMaxPartNamesOfARun)) beyond.push_back(name);
  for (const std::string& name : beyond) metrics.erase(name);
  if (beyond.empty()) return "";
  metrics[kPartsLeftOut] += static_cast<double>(beyond.size());
  if (std::exchange(told_of_parts_, true)) return "";
  return fmt::format(
      "the reward programs have named more than {} parts, {:.120} is a new one: metrics leave further ones "
      "out and count them in {}; rollouts have them all. Give parts the same names for every response",
      kMaxPartNamesOfARun, dump_json_line(beyond.front()), kPartsLeftOut);
}

std::string PartNames::limit_domains(std::map<std::string, double>& metrics) {
  std::vector<std::string> beyond;
  for (const auto& [name, value] : metrics)
    if (const std::string domain = domain_of(name);
        !domain.empty() && !take(domains_, domain, kMaxDomainsOfARun))
      beyond.push_back(domain);
  for (const std::string& domain : beyond)
    std::erase_if(metrics, [&](const auto& metric) {
      return metric.first.starts_with(domain) &&
             is_of_domain(std::string_view(metric.first).substr(domain.size()));
    });
  if (beyond.empty()) return "";
  metrics[kDomainsLeftOut] += static_cast<double>(beyond.size());
  if (std::exchange(told_of_domains_, true)) return "";
  return fmt::format(
      "the data have more than {} domains, {:.120} is a new one: metrics leave further ones out and count "
      "them in {}; rollouts have them all. Name a key with fewer values as data.domain_key",
      kMaxDomainsOfARun, dump_json_line(beyond.front()), kDomainsLeftOut);
}

}  // namespace temper
