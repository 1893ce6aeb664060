#include "src/comm/watch/watch_hub.h"

#include <spdlog/fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace temper {
namespace {

constexpr size_t kMostListed = 16;

std::string text_of(const char (&bytes)[80]) { return {bytes, ::strnlen(bytes, sizeof bytes)}; }

std::string wait_of(const ProgressState& s) {
  return fmt::format("'{}' ({})", text_of(s.what), text_of(s.where));
}

/// Takes whole messages off the front.
template <class See>
void each_message(std::string& bytes, const See& see) {
  WatchMessage message;
  while (bytes.size() >= sizeof message) {
    std::memcpy(&message, bytes.data(), sizeof message);
    bytes.erase(0, sizeof message);
    see(message);
  }
}

}  // namespace

std::string since(double seconds) {
  const auto begin =
      std::chrono::system_clock::now() - std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  return fmt::format("{:.1f} s, since {:%Y-%m-%dT%H:%M:%S}Z", seconds,
                     fmt::gmtime(std::chrono::system_clock::to_time_t(begin)));
}

WatchHub::WatchHub(Socket listener, int rank, WatchWord job, std::vector<RankPlace> places,
                   double limit_seconds, double now)
    : listener_(std::move(listener)),
      me_(static_cast<size_t>(rank)),
      job_(job),
      places_(std::move(places)),
      limit_(limit_seconds),
      ranks_(places_.size()),
      bytes_(places_.size()) {
  for (Rank& r : ranks_) r.heard = r.changed = now;
}

void WatchHub::add_to(std::vector<pollfd>& wanted) const {
  if (listener_) wanted.push_back({listener_.descriptor(), POLLIN, 0});
  for (const Newcomer& n : newcomers_) wanted.push_back({n.line.descriptor(), POLLIN, 0});
  for (const Rank& r : ranks_)
    if (r.line && !r.closed) wanted.push_back({r.line.descriptor(), POLLIN, 0});
}

void WatchHub::take(const WatchMessage& message, double now) {
  const auto at = static_cast<size_t>(message.rank);
  if (message.job != job_ || message.rank < 0 || at >= ranks_.size()) return;
  Rank& rank = ranks_[at];
  rank.heard = now;
  if (message.state.count != rank.last.state.count) rank.changed = now;
  if (rank.last.kind == WatchMessage::alive) rank.last = message;
}

/// Known or dropped: false.
bool WatchHub::stays_new(Newcomer& n, double now) {
  const bool there = n.line.receive(n.bytes);
  WatchMessage first;
  if (n.bytes.size() < sizeof first) return there && now - n.since <= kNewcomerSeconds;
  std::memcpy(&first, n.bytes.data(), sizeof first);
  const auto at = static_cast<size_t>(first.rank);
  if (first.job != job_ || first.rank < 0 || at >= ranks_.size() || ranks_[at].line) return false;
  bytes_[at] = std::move(n.bytes);
  ranks_[at].line = std::move(n.line);
  return false;
}

void WatchHub::welcome(double now) {
  constexpr int kMostAtOnce = 256;
  for (Newcomer& n : newcomers_)
    if (!stays_new(n, now)) n.line = Socket();
  std::erase_if(newcomers_, [](const Newcomer& n) { return !n.line; });
  if (!listener_) return;
  for (int i = 0; i < kMostAtOnce; ++i) {
    Newcomer newcomer{accept_one(listener_), "", now};
    if (!newcomer.line) return;
    if (!stays_new(newcomer, now)) continue;
    if (newcomers_.size() == kMostNewcomers) newcomers_.erase(newcomers_.begin());
    newcomers_.push_back(std::move(newcomer));
  }
}

void WatchHub::look(const ProgressState& mine, double now) {
  welcome(now);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (!rank.line || rank.closed) continue;
    rank.closed = !rank.line.receive(bytes_[i]);
    each_message(bytes_[i], [&](const WatchMessage& m) { take(m, now); });
  }
  take({job_, static_cast<int32_t>(me_), WatchMessage::alive, mine}, now);
}

WatchHub::Fault WatchHub::fault_of(size_t i, double now, bool deaths) const {
  const Rank& rank = ranks_[i];
  if (rank.last.kind != WatchMessage::alive) return Fault::none;
  if (rank.closed) return deaths ? Fault::died : Fault::none;
  if (now - rank.heard > limit_) return Fault::silent;
  return !rank.last.state.waits && now - rank.changed > limit_ ? Fault::stuck : Fault::none;
}

/// Each for another: nobody will make progress.
bool WatchHub::all_wait(double now) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& r) {
    return r.last.kind == WatchMessage::alive && !r.closed && r.last.state.waits && now - r.changed > limit_;
  });
}

std::optional<Verdict> WatchHub::judge(double now, bool deaths) const {
  // An error ends the job, and its launcher the other ranks: none of them is the cause.
  const bool ending = std::any_of(ranks_.begin(), ranks_.end(),
                                  [](const Rank& r) { return r.last.kind == WatchMessage::failed; });
  if (ending) return std::nullopt;
  const auto fault = [&](size_t i) { return fault_of(i, now, deaths); };
  if (me_ != 0 && fault(0) != Fault::died && fault(0) != Fault::silent) return std::nullopt;
  std::vector<size_t> missing;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (fault(i) != Fault::none) missing.push_back(i);
  if (!missing.empty()) {
    const auto dead =
        std::find_if(missing.begin(), missing.end(), [&](size_t i) { return fault(i) == Fault::died; });
    if (dead != missing.end()) return Verdict{true, report(*dead, Fault::died, now) + others(now)};
    std::string text;
    for (size_t k = 0; k < std::min(missing.size(), kMostListed); ++k)
      text += report(missing[k], fault(missing[k]), now);
    return Verdict{false, text + others(now)};
  }
  if (!all_wait(now)) return std::nullopt;
  if (ranks_.size() == 1) return Verdict{false, report(0, Fault::stuck, now)};
  return Verdict{
      false,
      fmt::format("all {} ranks wait for each other\n  where: rank 0 to rank {}\n  why:   no rank made "
                  "progress for longer than {} s\n",
                  ranks_.size(), ranks_.size() - 1, limit_) +
          others(now)};
}

std::string WatchHub::describe(size_t i) const {
  const ProgressState& s = ranks_[i].last.state;
  return fmt::format("rank {}, host {}, pid {}, phase {}{}", i, places_[i].host, places_[i].process,
                     phase_name(s.phase), s.step > 0 ? fmt::format(", step {}", s.step) : "");
}

std::string WatchHub::report(size_t i, Fault fault, double now) const {
  const Rank& rank = ranks_[i];
  const ProgressState& s = rank.last.state;
  const std::string doing = s.waits ? "it was waiting in " + wait_of(s) : "it was at work";
  const std::string step = s.step > 0 ? fmt::format(" of step {}", s.step) : "";
  std::string what, why;
  if (fault == Fault::died) {
    what = fmt::format("rank {} on host {} died in {}{}", i, places_[i].host, phase_name(s.phase), step);
    why = fmt::format("its process ended without a word; {}; nothing was heard of it for {}", doing,
                      since(now - rank.heard));
  } else if (fault == Fault::silent) {
    what = fmt::format("rank {} on host {} does not answer in {}{}", i, places_[i].host, phase_name(s.phase),
                       step);
    why = fmt::format(
        "nothing was heard of it for {}, the limit is {} s; {}: the process is stopped, or its host is cut "
        "off",
        since(now - rank.heard), limit_, doing);
  } else {
    what = fmt::format("rank {} on host {} makes no progress in {}{}", i, places_[i].host,
                       phase_name(s.phase), step);
    why = fmt::format("{} without a sign of progress for {}, the limit is {} s",
                      s.waits ? "it waits in " + wait_of(s) : "it is at work", since(now - rank.changed),
                      limit_);
  }
  const std::string log = places_[i].log.empty() ? "" : "  log:   " + places_[i].log + "\n";
  return fmt::format("{}\n  where: {}\n  why:   {}\n{}", what, describe(i), why, log);
}

std::string WatchHub::others(double now) const {
  std::string text;
  size_t listed = 0;
  for (size_t i = 0; i < ranks_.size() && listed < kMostListed; ++i) {
    const ProgressState& s = ranks_[i].last.state;
    if (!s.waits || ranks_[i].last.kind != WatchMessage::alive || ranks_[i].closed) continue;
    if (now - ranks_[i].heard > limit_) continue;
    ++listed;
    text +=
        fmt::format("  waits: {}: in {}, for {}\n", describe(i), wait_of(s), since(now - ranks_[i].changed));
  }
  return text;
}

bool WatchHub::all_others_left() const {
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (i != me_ && ranks_[i].last.kind == WatchMessage::alive && !ranks_[i].closed) return false;
  return true;
}

std::vector<ProgressState> WatchHub::states() const {
  std::vector<ProgressState> all;
  for (const Rank& rank : ranks_) all.push_back(rank.last.state);
  return all;
}

void WatchHub::send_end(int32_t code) {
  for (Rank& rank : ranks_)
    if (rank.line && !rank.closed) rank.line.send(&code, sizeof code);
}

}  // namespace temper
