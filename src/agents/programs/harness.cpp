#include "src/agents/programs/harness.h"

#include <algorithm>

#include "src/agents/programs/harness_work.h"
#include "src/core/check.h"
#include "src/core/text/nearest.h"

namespace temper {

Harness::Harness(Helpers& helpers, HarnessConfig config, std::function<void()> on_news)
    : work_(std::make_unique<Work>(helpers, std::move(config), std::move(on_news))) {}

Harness::~Harness() = default;

void Harness::start(uint64_t session, HarnessStart start) {
  work_->order({.kind = Work::Order::Kind::start, .session = session, .start = std::move(start)});
}

void Harness::answer(uint64_t session, Json turn) {
  work_->order({.kind = Work::Order::Kind::answer, .session = session, .turn = std::move(turn)});
}

void Harness::refuse(uint64_t session, const std::string& why) {
  work_->order({.kind = Work::Order::Kind::refuse, .session = session, .why = why});
}

void Harness::pause(uint64_t session) {
  work_->order({.kind = Work::Order::Kind::pause, .session = session});
}

void Harness::go_on(uint64_t session) {
  work_->order({.kind = Work::Order::Kind::go_on, .session = session});
}

std::vector<uint64_t> Harness::blocked() const { return work_->blocked(); }

void Harness::stop(uint64_t session, const std::string& why) {
  work_->order({.kind = Work::Order::Kind::stop, .session = session, .why = why});
}

std::vector<HarnessTurn> Harness::take_turns() { return work_->take_turns(); }
std::vector<HarnessEnd> Harness::take_ended() { return work_->take_ended(); }
bool Harness::wait(double seconds) { return work_->wait(seconds); }
int64_t Harness::waiting() const { return work_->waiting(); }
int64_t Harness::running() const { return work_->running(); }
HarnessCounts Harness::end_step() { return work_->end_step(); }
const HarnessConfig& Harness::config() const { return work_->config(); }

size_t chosen_harness(const std::vector<HarnessConfig>& harnesses, const Json& record,
                      const std::string& where) {
  CHECK(!harnesses.empty(), "no program plays sessions");
  std::vector<std::string> names;
  for (const HarnessConfig& harness : harnesses) names.push_back(harness.name);
  const auto refuse = [&](const std::string& why) {
    fail(Exit::data, {.what = "no program plays the sessions of a line",
                      .where = where,
                      .why = why,
                      .fix = fmt::format("name one of rollout.harness: {}", fmt::join(names, ", "))});
  };
  const auto key = record.is_object() ? record.find("environment") : record.end();
  const bool named = record.is_object() && key != record.end() && !key->is_null();
  if (!named && harnesses.size() == 1) return 0;
  if (!named) refuse("it has no key `environment`, and there are several programs");
  // The only program without a name plays all lines, whatever they are said to be for.
  if (harnesses.size() == 1 && names[0].empty()) return 0;
  if (!key->is_string()) refuse("its `environment` is " + json_kind(*key));
  const std::string name = key->get<std::string>();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    refuse(fmt::format("its `environment` is \"{}\"{}", name, did_you_mean(name, names)));
  return static_cast<size_t>(found - names.begin());
}

}  // namespace temper
