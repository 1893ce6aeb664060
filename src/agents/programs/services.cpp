#include "src/agents/programs/services.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/agents/programs/program_environment.h"
#include "src/agents/programs/program_lines.h"

namespace temper {
namespace {

constexpr size_t kClosedKept = 4096;

}  // namespace

Services::Services(Helpers& helpers, const HarnessConfig& config, std::vector<std::string> words,
                   std::map<std::string, std::string> env)
    : helpers_(helpers),
      config_(config),
      words_(std::move(words)),
      env_(std::move(env)),
      workers_(static_cast<size_t>(config.workers)) {}

Services::~Services() {
  for (Worker& worker : workers_)
    if (worker.pipes) helpers_.end(worker.pipes->program);
}

/// Among those that may run and have room the worker with the fewest sessions. Where all pause, one that has
/// ended too often: sessions end there, they do not wait for it.
std::optional<size_t> Services::find_place() const {
  std::optional<size_t> least, failing;
  bool all_pause = true;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    const bool room = static_cast<int64_t>(worker.open.size()) < config_.in_flight;
    all_pause = all_pause && !may_run(worker);
    if (!may_run(worker) && worker.ends_in_row >= kMostInRow) failing = i;
    if (may_run(worker) && room && (!least || worker.open.size() < workers_[*least].open.size())) least = i;
  }
  return all_pause ? failing : least;
}

void Services::begin(uint64_t session, const HarnessStart& start, PlayerNews& news) {
  Worker& worker = workers_[find_place().value()];
  if (!may_run(worker))
    return news.fail(session, worker.last_reason,
                     fmt::format("not begun: its service has ended {} times in a row; the last time {}",
                                 worker.ends_in_row, worker.last_why));
  if (!worker.pipes && !run(worker, session, news)) return;
  worker.pipes->send(dump_json_line({{"id", start.id}, {"start", start_json(start, /*service=*/true)}}) +
                     "\n");
  worker.pipes->move();
  worker.closed.erase(start.id);  // another try with the same id
  worker.open[start.id] = {session};
  places_[session] = {&worker, start.id};
}

bool Services::run(Worker& worker, uint64_t session, PlayerNews& news) {
  const HelperProgram program = helpers_.start_apart(words_, program_environment(env_, nullptr));
  if (program.pid <= 0) {
    const std::string why = std::strerror(program.error);
    drop(worker, EndReason::no_start, why, news);
    news.fail(session, EndReason::no_start, why);
    return false;
  }
  worker.pipes = std::make_unique<ProgramPipes>(program);
  worker.closed.clear();
  worker.closed_order.clear();
  worker.late_in_row = 0;
  worker.silent_since.reset();
  news.restarts += ++worker.starts > 1;
  return true;
}

void Services::answer(uint64_t session, Json turn) {
  const auto place = places_.find(session);
  if (place == places_.end()) return;
  auto& [worker, id] = place->second;
  Json line{{"id", id}};
  for (auto& [key, value] : turn.items()) line[key] = std::move(value);
  line["id"] = id;
  worker->open.at(id).asks = false;
  worker->pipes->send(dump_json_line(line) + "\n");
  worker->pipes->move();
}

void Services::stop(uint64_t session, const std::string& why, bool late, PlayerNews& news) {
  const auto place = places_.find(session);
  if (place == places_.end()) return;
  const auto [worker, id] = place->second;
  close(*worker, id, why);
  if (late && ++worker->late_in_row >= config_.in_flight)
    drop(*worker, EndReason::died,
         fmt::format("ended: {} sessions in a row were late and it said nothing", worker->late_in_row), news);
}

/// Its worker hears that the session is over, and may go on to speak of it for a while.
void Services::close(Worker& worker, const std::string& id, const std::string& why) {
  places_.erase(worker.open.at(id).session);
  worker.open.erase(id);
  if (!why.empty()) worker.pipes->send(dump_json_line({{"id", id}, {"stop", why}}) + "\n");
  worker.closed.insert(id);
  worker.closed_order.push_back(id);
  if (worker.closed_order.size() <= kClosedKept) return;
  worker.closed.erase(worker.closed_order.front());
  worker.closed_order.pop_front();
}

void Services::add_to(std::vector<pollfd>& waits) const {
  for (const Worker& worker : workers_)
    if (worker.pipes) worker.pipes->add_to(waits);
}

double Services::patience(double most) const {
  for (const Worker& worker : workers_) {
    const std::chrono::duration<double> left = worker.not_before - Clock::now();
    if (!worker.pipes && left.count() > 0) most = std::min(most, left.count());
  }
  return most;
}

void Services::move(PlayerNews& news) {
  for (Worker& worker : workers_)
    if (worker.pipes) hear(worker, news);
}

void Services::hear(Worker& worker, PlayerNews& news) {
  worker.pipes->move();
  const ProgramPipes& pipes = *worker.pipes;
  bool sound = true;
  std::string wrong;
  worker.pipes->read_lines([&](std::string_view line, bool whole) {
    sound = take_line(worker, line, whole, news);
    if (!sound)
      wrong = whole ? shown_line(line) : fmt::format("a line of more than {} bytes", kMaxHarnessLine);
    return sound;
  });
  if (!sound)
    drop(worker, EndReason::nonsense, "its service talks nonsense: " + wrong, news);
  else if (has_ended(worker))
    drop(worker, EndReason::died, pipes.ending() + pipes.last_words(), news);
}

/// The end of stdout comes before that of the process, which says more.
bool Services::has_ended(Worker& worker) {
  if (worker.pipes->exited()) return true;
  if (!worker.pipes->silent()) return false;
  if (!worker.silent_since) worker.silent_since = Clock::now();
  const std::chrono::duration<double> silent = Clock::now() - *worker.silent_since;
  return worker.open.empty() || silent.count() >= kSilence;
}

/// False: it cannot be told whose line that is.
bool Services::take_line(Worker& worker, std::string_view line, bool whole, PlayerNews& news) {
  const std::optional<Json> read = whole ? read_line(line) : std::nullopt;
  const auto id = read ? read->find("id") : Json::const_iterator();
  if (!read || id == read->end() || !id->is_string()) return false;
  const std::string name = id->get<std::string>();
  worker.late_in_row = 0;
  if (worker.closed.contains(name)) return true;
  if (!worker.open.contains(name)) return false;
  take_word(worker, name, *read, news);
  return true;
}

void Services::take_word(Worker& worker, const std::string& id, const Json& line, PlayerNews& news) {
  Open& open = worker.open.at(id);
  const uint64_t session = open.session;
  const auto nonsense = [&](const std::string& why) {
    news.fail(session, EndReason::nonsense, why + ": " + shown_line(dump_json_line(line)));
    close(worker, id, "nonsense");
  };
  if (const auto done = line.find("done"); done != line.end() && *done == true) {
    SessionEnd end;
    if (const std::string wrong = read_reward(line, end); !wrong.empty()) return nonsense(wrong);
    news.ended.push_back({session, std::move(end), ""});
    worker.ends_in_row = 0;
    return close(worker, id, "");
  }
  if (open.asks) return nonsense("a turn before the answer to the last one");
  Json messages;
  if (const std::string wrong = read_turn(line, messages); !wrong.empty()) return nonsense(wrong);
  open.asks = true;
  news.turns.push_back({session, open.turns++, std::move(messages)});
}

/// Kills the worker; what it played ends so.
void Services::drop(Worker& worker, EndReason reason, const std::string& why, PlayerNews& news) {
  if (worker.pipes) end_program(helpers_, worker.pipes->program);
  for (const auto& [id, open] : worker.open) {
    news.fail(open.session, reason, why);
    places_.erase(open.session);
  }
  worker.open.clear();
  worker.pipes.reset();
  const double pause = std::min(kLongestPause, kFirstPause * std::pow(2, worker.ends_in_row));
  ++worker.ends_in_row;
  worker.not_before =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause));
  worker.last_reason = reason;
  worker.last_why = why;
}

}  // namespace temper
