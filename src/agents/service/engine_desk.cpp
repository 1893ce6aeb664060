#include "src/agents/service/engine_desk.h"

namespace temper {

DeskNumber EngineDesk::ask(size_t lane, Request request) {
  DeskNumber number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_[lane];
    next_[lane] += next_.size();
    asked_.fresh.emplace_back(number, std::move(request));
  }
  changed_.notify_one();
  return number;
}

void EngineDesk::cancel(DeskNumber number) {
  {
    const std::lock_guard lock(mutex_);
    asked_.cancelled.push_back(number);
  }
  changed_.notify_one();
}

EngineDesk::Asked EngineDesk::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(asked_, {});
}

void EngineDesk::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
}

void EngineDesk::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [this] { return woken_ || !asked_.empty(); });
  woken_ = false;
}

DeskGeneration::DeskGeneration(Engine& engine, const GenerateOptions& options, const Tokenizer* tokenizer,
                               EngineDesk& desk)
    : desk_(desk),
      news_(desk.lanes()),
      generation_(
          engine, options, tokenizer,
          [this](const Engine::Grown& g) {
            const DeskNumber number = at_work_.at(g.index);
            news_[desk_.lane_of(number)].grown.push_back(
                {number, g.sample, g.token, g.logprob, g.text, g.found});
          },
          [this](size_t request, std::vector<PromptScore> scores) {
            const DeskNumber number = at_work_.at(request);
            news_[desk_.lane_of(number)].scored.push_back({number, std::move(scores)});
          }) {}

void DeskGeneration::take(EngineDesk::Asked asked) {
  for (auto& [number, request] : asked.fresh) {
    try {
      const size_t at = generation_.add(std::move(request));
      at_work_.emplace(at, number);
      numbers_.emplace(number, at);
    } catch (const Error& e) {  // what a client asked for ends no server
      if (e.code() != Exit::data) throw;
      news_[desk_.lane_of(number)].refused.push_back({number, e.problem().what + ": " + e.problem().why});
    }
  }
  for (const DeskNumber number : asked.cancelled) {
    const auto found = numbers_.find(number);
    if (found == numbers_.end()) continue;  // it has ended
    generation_.cancel(found->second);
    at_work_.erase(found->second);
    numbers_.erase(found);
  }
  tell({});  // refusals, where there is nothing to do
}

void DeskGeneration::tell(std::vector<Generation::Finished> finished) {
  for (Generation::Finished& f : finished) {
    const DeskNumber number = at_work_.extract(f.request).mapped();
    numbers_.erase(number);
    news_[desk_.lane_of(number)].done.push_back({number, std::move(f.responses)});
  }
  for (size_t lane = 0; lane < news_.size(); ++lane) desk_.publish(lane, std::exchange(news_[lane], {}));
}

void DeskGeneration::step(Ctx& c) {
  tell(idle() ? std::vector<Generation::Finished>{} : generation_.step(c));
}

void DeskGeneration::cut(Ctx& c) { tell(generation_.cut(c)); }

}  // namespace temper
