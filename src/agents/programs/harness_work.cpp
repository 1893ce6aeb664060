#include "src/agents/programs/harness_work.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/agents/programs/episodes.h"
#include "src/agents/programs/program_environment.h"
#include "src/agents/programs/services.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/core/text/printable.h"
#include "src/core/threads/quiet_thread.h"

namespace temper {
namespace {

constexpr int64_t kWarningsPerStep = 5;
constexpr double kMostBetweenNotes = 0.5, kMostAsleep = 3600;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  return passed.count();
}

/// Its name, or its words on a line.
std::string shown_program(const HarnessConfig& config) {
  constexpr size_t kShown = 80;
  if (!config.name.empty()) return config.name;
  std::string words = fmt::format("{}", fmt::join(config.argv, " "));
  std::replace(words.begin(), words.end(), '\n', ' ');
  return words.size() > kShown ? printable(words.substr(0, kShown)) + "..." : words;
}

}  // namespace

Harness::Work::Work(Helpers& helpers, HarnessConfig config, std::function<void()> on_news)
    : config_(std::move(config)),
      shown_(shown_program(config_)),
      on_news_(std::move(on_news)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(wake_ >= 0, "no eventfd");
  std::vector<std::string> words = program_words(config_.argv);
  std::map<std::string, std::string> env = resolved_env(config_);
  if (config_.service())
    player_ = std::make_unique<Services>(helpers, config_, std::move(words), std::move(env));
  else
    player_ = std::make_unique<Episodes>(helpers, config_, std::move(words), std::move(env));
  thread_ = quiet_thread([this] { work(); });  // a pipe whose reader has died answers with an error there
}

Harness::Work::~Work() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  thread_.join();
  player_.reset();
  ::close(wake_);
}

void Harness::Work::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = ::write(wake_, &one, sizeof one);  // full: it is awake
}

void Harness::Work::order(Order order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  wake();
}

std::vector<HarnessTurn> Harness::Work::take_turns() {
  const std::lock_guard lock(mutex_);
  return std::exchange(turns_, {});
}

std::vector<HarnessEnd> Harness::Work::take_ended() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  for (const HarnessEnd& end : ended_)
    if (end.end.reason != EndReason::done && config_.on_error == "stop" && !end.again)
      fail(Exit::data,
           {.what = "a program played no session to its end",
            .where = fmt::format("rollout.harness, {}", shown_),
            .why = fmt::format("{}: {}", end_reason_name(end.end.reason), end.why),
            .fix = "correct the program, raise limit_seconds or retries, or set on_error = \"exclude\""});
  return std::exchange(ended_, {});
}

bool Harness::Work::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [&] { return failure_ || !turns_.empty() || !ended_.empty(); });
}

std::vector<uint64_t> Harness::Work::blocked() const {
  const std::lock_guard lock(mutex_);
  return blocked_;
}

int64_t Harness::Work::waiting() const {
  const std::lock_guard lock(mutex_);
  const auto starts = [](const Order& order) { return order.kind == Order::Kind::start; };
  return waiting_count_ + std::count_if(orders_.begin(), orders_.end(), starts);
}

int64_t Harness::Work::running() const {
  const std::lock_guard lock(mutex_);
  return running_count_;
}

HarnessCounts Harness::Work::end_step() {
  const std::lock_guard lock(mutex_);
  failures_told_ = 0;
  return std::exchange(counts_, {});
}

void Harness::Work::work() {
  while (true) {
    PlayerNews news;
    try {
      if (!take_orders(news)) return;
      player_->move(news);
      end_late(news);
      begin_waiting(news);
    } catch (...) {  // goes to the loop
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    publish(std::move(news));
    wait_for_programs();
  }
}

/// False: it is time to leave.
bool Harness::Work::take_orders(PlayerNews& news) {
  std::vector<Order> orders;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    orders.swap(orders_);
  }
  for (Order& order : orders) obey(order, news);
  return true;
}

void Harness::Work::obey(Order& order, PlayerNews& news) {
  const uint64_t session = order.session;
  const bool runs = begun_.contains(session);
  switch (order.kind) {
    case Order::Kind::start:
      waiting_.push_back({session, std::move(order.start), Clock::now()});
      return;
    case Order::Kind::answer:
      if (runs) player_->answer(session, std::move(order.turn));
      return;
    case Order::Kind::refuse:
      if (!runs) return;
      player_->stop(session, order.why, /*late=*/false, news);
      return news.fail(session, EndReason::nonsense, order.why);
    case Order::Kind::stop:
      tries_.erase(session);
      std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.session == session; });
      if (!runs) return;
      player_->stop(session, order.why, /*late=*/false, news);
      begun_.erase(session);
      paused_.erase(session);
      return;
    case Order::Kind::pause:
      if (runs) paused_.emplace(session, Clock::now());
      return;
    case Order::Kind::go_on:
      if (const auto paused = paused_.extract(session); paused && runs)
        begun_[session] += Clock::now() - paused.mapped();
      return;
  }
}

void Harness::Work::begin_waiting(PlayerNews& news) {
  while (!waiting_.empty() && player_->has_room()) {
    Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    begun_[first.session] = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      counts_.waited_seconds += seconds_since(first.since);
    }
    player_->begin(first.session, first.start, news);
  }
}

double Harness::Work::seconds_left(uint64_t session, Clock::time_point begin) const {
  return paused_.contains(session) ? std::numeric_limits<double>::infinity()
                                   : config_.limit_seconds - seconds_since(begin);
}

void Harness::Work::end_late(PlayerNews& news) {
  std::vector<uint64_t> late;
  for (const auto& [session, begin] : begun_)
    if (seconds_left(session, begin) <= 0) late.push_back(session);
  for (const PlayerNews::Ended& ended : news.ended) std::erase(late, ended.session);  // as its time was over
  for (const uint64_t session : late) {
    const bool told = std::any_of(news.ended.begin(), news.ended.end(),
                                  [&](const PlayerNews::Ended& ended) { return ended.session == session; });
    if (told) continue;  // its worker was given up because of another one
    news.fail(session, EndReason::late, fmt::format("no end within {} s", config_.limit_seconds));
    player_->stop(session, "late", /*late=*/true, news);
  }
}

/// Until a program writes or reads, a session is late, or there is something new to do.
void Harness::Work::wait_for_programs() {
  std::vector<pollfd> waits{{wake_, POLLIN, 0}};
  player_->add_to(waits);
  double left = kMostAsleep;
  for (const auto& [session, begin] : begun_) left = std::min(left, seconds_left(session, begin));
  // Sessions have a limit of their own: as long as one is within it, the rank does not hang.
  if (begun_.size() > paused_.size()) {
    note_progress();
    left = std::min(left, kMostBetweenNotes);
  }
  if (!waiting_.empty()) left = player_->patience(left);
  ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(std::max(left, 0.0) * 1000)));
  uint64_t unused;
  [[maybe_unused]] const ssize_t got = ::read(wake_, &unused, sizeof unused);
}

void Harness::Work::publish(PlayerNews news) {
  bool any = false;
  {
    const std::lock_guard lock(mutex_);
    for (HarnessTurn& turn : news.turns) turns_.push_back(std::move(turn));
    for (PlayerNews::Ended& ended : news.ended)
      if (begun_.erase(ended.session) > 0) {
        paused_.erase(ended.session);
        ended_.push_back(judge(std::move(ended)));
      }
    counts_.restarts += news.restarts;
    blocked_.clear();
    if (!player_->has_room())
      for (const Waiting& waiting : waiting_) blocked_.push_back(waiting.session);
    waiting_count_ = static_cast<int64_t>(waiting_.size());
    running_count_ = static_cast<int64_t>(begun_.size());
    any = failure_ || !turns_.empty() || !ended_.empty();
  }
  if (!any) return;
  changed_.notify_all();
  if (on_news_) on_news_();
}

/// Under the mutex.
HarnessEnd Harness::Work::judge(PlayerNews::Ended ended) {
  HarnessEnd end{ended.session, std::move(ended.end), std::move(ended.why)};
  if (end.end.reason == EndReason::done) {
    tries_.erase(end.session);
  } else {
    end.again = tries_[end.session]++ < config_.retries;
    if (++failures_told_ <= kWarningsPerStep)
      log::warn("a session of the program {} failed: {}: {}", shown_, end_reason_name(end.end.reason),
                end.why);
  }
  if (end.again) {
    ++counts_.retries;
    return end;
  }
  tries_.erase(end.session);
  ++counts_.ended[static_cast<size_t>(end.end.reason)];
  if (end.end.reason != EndReason::done && config_.on_error == "zero") end.end.reward = 0;
  return end;
}

}  // namespace temper
