#include "src/run/record/tracker/tracker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <random>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/core/threads/quiet_thread.h"

namespace temper {
namespace {

constexpr int64_t kMostPlace = 4096;  // bytes of tracker.json

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string place_file(const TrackerOptions& options) { return join_path(options.folder, "tracker.json"); }

std::string name_of(const TrackerOptions& options) {
  return fmt::format("{:.120}", fmt::format("{}", fmt::join(options.argv, " ")));
}

}  // namespace

Tracker::Tracker(Helpers& helpers, TrackerOptions options)
    : helpers_(helpers),
      options_(std::move(options)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      steps_(options_.folder) {
  CHECK(wake_ >= 0, "no eventfd");
  read_place();
  start();
  thread_ = quiet_thread([this] { work(); });
}

Tracker::~Tracker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  thread_.join();
  if (program_) helpers_.end(program_->program);
  ::close(wake_);
}

void Tracker::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = ::write(wake_, &one, sizeof one);  // full: it is awake
}

void Tracker::note_step(int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    newest_ = std::max(newest_, step);
  }
  wake();
}

std::map<std::string, double> Tracker::take_counts() {
  const std::lock_guard lock(mutex_);
  std::map<Failure, int64_t> failures = std::exchange(failures_, {});
  return {{"perf/tracker_late", static_cast<double>(failures[Failure::late])},
          {"perf/tracker_died", static_cast<double>(failures[Failure::died])},
          {"perf/tracker_nonsense", static_cast<double>(failures[Failure::nonsense])},
          {"perf/tracker_behind", static_cast<double>(std::max<int64_t>(0, newest_ - taken_))}};
}

void Tracker::finish(const End& end, double patience) {
  constexpr std::chrono::milliseconds kBetweenNotes{200};
  std::unique_lock lock(mutex_);
  end_ = end;
  wake();
  for (const Stopwatch waited; !done_ && waited.seconds() < patience;) {
    changed_.wait_for(lock, kBetweenNotes, [this] { return done_; });
    note_progress();
  }
  if (newest_ > taken_)
    log::warn("the tracker {} lacks the steps after {}: it gets them when the same command is run again",
              name_of(options_), taken_);
}

/// A file that cannot be read is as none.
void Tracker::read_place() {
  id_ = new_id();
  if (!path_exists(place_file(options_))) return keep_place();
  const Json place = Json::parse(read_file(place_file(options_), kMostPlace), nullptr, false);
  const auto id = place.is_object() ? place.find("id") : place.end();
  const auto step = place.is_object() ? place.find("step") : place.end();
  if (id == place.end() || step == place.end() || !id->is_string() || !step->is_number_integer()) return;
  id_ = id->get<std::string>();
  taken_ = std::max<int64_t>(-1, step->get<int64_t>());
}

/// One that is lost costs a step that comes twice, no step of the run.
void Tracker::keep_place() const {
  try {
    write_file_atomic(place_file(options_), dump_json_line({{"id", id_}, {"step", taken_}}) + "\n");
  } catch (const Error& e) {
    log::warn("{}", e.problem().what);
  }
}

void Tracker::work() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || done_) return;
    }
    if (!program_ && since_.seconds() >= pause_) try {
        start();
      } catch (const KeeperLost& e) {
        log::warn("{} is not started any more: {}", name_of(options_), e.problem().why);
        const std::lock_guard lock(mutex_);
        done_ = true;
        changed_.notify_all();
        return;
      } catch (const Error& e) {
        drop(Failure::died, e.problem().why);
      }
    if (program_) go_on();
    wait_for_program();
    if (!program_) continue;
    program_->write();
    read_answers(*program_);
    if (is_asked() && seconds_left() <= 0)
      drop(Failure::late, fmt::format("no answer within {} s", options_.limit_seconds));
  }
}

void Tracker::start() {
  program_ = std::make_unique<TrackerProgram>(helpers_.start(options_.argv));
  greeted_ = ended_ = false;
  asked_.reset();
  since_ = {};
  program_->put(dump_json_line({{"type", "run"},
                                {"id", id_},
                                {"name", options_.name},
                                {"folder", options_.folder},
                                {"has", taken_},
                                {"config", options_.config}}) +
                "\n");
}

/// What there is to send, when the program waits for it.
void Tracker::go_on() {
  if (!greeted_ || asked_ || ended_) return;
  try {
    if (std::optional<TrackedSteps::Step> step = steps_.next(taken_)) return send_step(*std::move(step));
  } catch (const Error& e) {
    return drop(Failure::died, "the run folder cannot be read: " + e.problem().why);
  }
  const std::lock_guard lock(mutex_);
  if (end_) send_end();
}

void Tracker::send_step(TrackedSteps::Step step) {
  program_->put(step.lines);
  asked_ = step.step;
  since_ = {};
}

/// The caller holds the mutex.
void Tracker::send_end() {
  program_->put(dump_json_line({{"type", "end"}, {"step", end_->step}, {"finished", end_->finished}}) + "\n");
  ended_ = true;
  since_ = {};
}

void Tracker::read_answers(TrackerProgram& program) {
  if (ended_ && !program.wants_to_write()) program.close_input();
  std::vector<Json> answers;
  const TrackerProgram::Said said = program.read(answers);
  for (const Json& answer : answers)
    if (const std::string why = take_answer(answer); !why.empty()) return drop(Failure::nonsense, why);
  if (said == TrackerProgram::Said::nonsense) return drop(Failure::nonsense, program.why);
  if (said != TrackerProgram::Said::end) return;
  if (!ended_) return drop(Failure::died, "the program has ended or closed its stdout");
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

/// Returns what is wrong with it.
std::string Tracker::take_answer(const Json& answer) {
  const auto at = answer.find("step");
  if (at == answer.end() || !at->is_number_integer() || at->get<int64_t>() < -1)
    return "an answer without \"step\": " + dump_json_line(answer).substr(0, 120);
  const int64_t step = at->get<int64_t>();
  if (greeted_ && asked_ != step) return fmt::format("it says step {} and was not asked for it", step);
  pause_ = 0;
  if (!greeted_) steps_.rewind();
  greeted_ = true;
  asked_.reset();
  since_ = {};
  {
    const std::lock_guard lock(mutex_);
    taken_ = step;
  }
  keep_place();
  return "";
}

/// `why` may be the program's own words, which go with it.
void Tracker::drop(Failure failure, std::string why) {
  constexpr std::array kHow{"is late", "has ended", "talks nonsense"};
  if (program_) helpers_.end(program_->program);
  program_.reset();
  asked_.reset();
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  since_ = {};
  log::warn("the tracker {} {}: {}; it is started again in {} s", name_of(options_),
            kHow[static_cast<size_t>(failure)], why, pause_);
  const std::lock_guard lock(mutex_);
  ++failures_[failure];
}

/// Seconds until the program is late, or is to be started.
double Tracker::seconds_left() const {
  return (program_ ? options_.limit_seconds : pause_) - since_.seconds();
}

/// Until it writes or reads, is late, or there is something new to do.
void Tracker::wait_for_program() {
  std::vector<pollfd> waits{{wake_, POLLIN, 0}};
  double left = 3600;
  if (program_) {
    waits.push_back({program_->program.output, POLLIN, 0});
    if (program_->wants_to_write()) waits.push_back({program_->program.input, POLLOUT, 0});
  }
  if (!program_ || is_asked()) left = std::max(0.0, seconds_left());
  ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(left * 1000)));
  uint64_t unused;
  [[maybe_unused]] const ssize_t got = ::read(wake_, &unused, sizeof unused);
}

}  // namespace temper
