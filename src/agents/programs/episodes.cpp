#include "src/agents/programs/episodes.h"

#include <cstring>

#include "src/agents/programs/program_environment.h"
#include "src/agents/programs/program_lines.h"

namespace temper {

Episodes::~Episodes() {
  for (auto& [session, episode] : open_) helpers_.end(episode->pipes.program);
}

void Episodes::begin(uint64_t session, const HarnessStart& start, PlayerNews& news) {
  const HelperProgram program = helpers_.start_apart(words_, program_environment(env_, &start));
  if (program.pid <= 0) return news.fail(session, EndReason::no_start, std::strerror(program.error));
  auto episode = std::make_unique<Episode>(program);
  episode->pipes.send(dump_json_line(start_json(start, /*service=*/false)) + "\n");
  episode->pipes.end_input();
  episode->pipes.move();
  open_.emplace(session, std::move(episode));
}

void Episodes::stop(uint64_t session, const std::string&, bool, PlayerNews&) {
  const auto found = open_.find(session);
  if (found == open_.end()) return;
  helpers_.end(found->second->pipes.program);
  open_.erase(found);
}

void Episodes::add_to(std::vector<pollfd>& waits) const {
  for (const auto& [session, episode] : open_) episode->pipes.add_to(waits);
}

void Episodes::move(PlayerNews& news) {
  for (auto at = open_.begin(); at != open_.end();) {
    Episode& episode = *at->second;
    episode.pipes.move();  // first how it has ended: what it said before that is there
    episode.pipes.read_lines([&](std::string_view line, bool whole) {
      if (line.empty() && whole) return true;
      episode.last_line = line;
      episode.whole = whole;
      return true;
    });
    if (!episode.pipes.exited()) {
      ++at;
      continue;
    }
    end_program(helpers_, episode.pipes.program);
    finish(at->first, episode, news);
    at = open_.erase(at);
  }
}

void Episodes::finish(uint64_t session, Episode& episode, PlayerNews& news) {
  if (*episode.pipes.exited() != 0)
    return news.fail(session, EndReason::died, episode.pipes.ending() + episode.pipes.last_words());
  SessionEnd end;
  const std::string wrong = read_last_line(episode.last_line, episode.whole, end);
  if (!wrong.empty()) return news.fail(session, EndReason::nonsense, wrong);
  news.ended.push_back({session, std::move(end), ""});
}

}  // namespace temper
