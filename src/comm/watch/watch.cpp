#include "src/comm/watch/watch.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "src/comm/mpi_comm.h"
#include "src/comm/watch/progress_line.h"
#include "src/comm/watch/start_scan.h"
#include "src/comm/watch/watch_hub.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/log.h"
#include "src/core/process/host.h"
#include "src/core/process/local_parent.h"
#include "src/core/process/stop_signal.h"
#include "src/core/stopwatch.h"
#include "src/core/threads/quiet_thread.h"

namespace temper {
namespace {

constexpr double kLongestInterval = 0.25;  // between messages of a rank
constexpr double kMostBetweenTicks = 0.5;
constexpr int kTick = 20;  // milliseconds; a new phase is told at the next one

/// A rank that was stopped for longer than the limit may have been given up by the others, whose launcher
/// wakes it as it ends the job: so long it blames nobody. More than a launcher takes to end a job.
constexpr double kShortestWake = 60;
/// What waits for a disk gets so long: the disk may be what the job hangs at.
constexpr auto kDiskPatience = std::chrono::seconds(5);

/// What the ranks tell each other once MPI is up.
struct Meeting {
  bool sees_all = false;  // every rank reaches the hubs
  bool is_hub = false;
  WatchWord job = {};
  std::vector<RankPlace> places;
  Socket listener;            // of a hub, where there are other ranks
  std::vector<Socket> lines;  // to the hubs that are not this rank
};

/// On another host than rank 0, if there is one.
int deputy_of(const std::vector<RankPlace>& places) {
  for (size_t i = 1; i < places.size(); ++i)
    if (places[i].host != places[0].host) return static_cast<int>(i);
  return 1;
}

WatchWord draw_word() {
  std::random_device draw;
  const auto half = [&] { return uint64_t{draw()} << 32 | draw(); };
  return {half(), half()};
}

Meeting meet_nobody() {
  Meeting m;
  m.sees_all = m.is_hub = true;
  m.places.push_back({this_host(), ::getpid()});
  return m;
}

Meeting meet(const MpiSession& mpi) {
  const std::unique_ptr<Comm> world = mpi.make_comm_of_all(std::numeric_limits<double>::infinity());
  Meeting m;
  m.listener = listen_anywhere();
  const Json mine = {
      {"host", this_host()}, {"pid", ::getpid()}, {"job", draw_word()}, {"address", address_of(m.listener)}};
  std::vector<Json> ranks;
  for (const std::string& text : world->all_gather(mine.dump(), "where each rank listens"))
    ranks.push_back(Json::parse(text));
  m.job = ranks.front().at("job").get<WatchWord>();
  for (const Json& r : ranks) m.places.push_back({r.at("host"), r.at("pid")});
  const std::array hubs{0, deputy_of(m.places)};
  bool blind = false;
  // Said at once: a hub has no time for who does not say it.
  const WatchMessage hello{m.job, mpi.rank(), WatchMessage::alive, progress_state()};
  for (const int hub : hubs) {
    if (hub == mpi.rank()) continue;
    m.lines.push_back(connect_to(ranks[static_cast<size_t>(hub)].at("address")));
    if (Socket& line = m.lines.back(); line)
      line.send(&hello, sizeof hello);
    else
      blind = true;
  }
  m.is_hub = std::find(hubs.begin(), hubs.end(), mpi.rank()) != hubs.end();
  if (!m.is_hub) m.listener = Socket();
  m.sees_all = world->all_reduce_max(blind ? 1.0 : 0.0, "lines of the watch") == 0;
  return m;
}

/// False where it did not end in time; it may go on.
bool patiently(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  const std::future<void> done = task.get_future();
  quiet_thread(std::move(task)).detach();
  return done.wait_for(kDiskPatience) == std::future_status::ready;
}

void append_report(const std::string& block, const std::string& file_name) {
  try {
    if (const size_t slash = file_name.rfind('/'); slash != std::string::npos)
      make_directories(file_name.substr(0, slash));
    const int file =
        ::open(file_name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (file >= 0 && ::write(file, block.data(), block.size()) >= 0) ::fsync(file);
  } catch (const Error&) {  // stderr has it
  }
}

/// A disk that does not say has none.
bool patiently_true(const std::function<bool()>& ask) {
  const auto answer = std::make_shared<std::atomic<bool>>(false);
  return patiently([answer, ask] { *answer = ask(); }) && *answer;
}

/// Tells of it and ends this process; its launcher ends the others.
[[noreturn]] void end_job(Exit code, const std::string& text, const std::string& report_file) {
  const std::string block = fmt::format(
      "temper: {}  fix:   start the same command again, it goes on from the newest checkpoint if there is "
      "one; a rank that only was slow: raise cluster.watchdog_seconds\n",
      text);
  std::fputs(block.c_str(), stderr);
  std::fflush(stderr);
  patiently([block, report_file] { append_report(block, report_file); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the launcher reads stderr
  leave_at_once(static_cast<int>(code));
}

/// Stands still while this process is stopped: it has not seen its ranks be silent then.
class OwnClock {
 public:
  explicit OwnClock(double limit_seconds) : limit_(limit_seconds) {}
  void look() {
    const double passed = watch_.seconds() - looked_;
    looked_ += passed;
    now_ += std::min(passed, kMostBetweenTicks);
    if (passed > limit_) judges_from_ = now_ + std::max(limit_, kShortestWake);
  }
  double now() const { return now_; }
  bool may_judge() const { return now_ >= judges_from_; }

 private:
  const Stopwatch watch_;
  const double limit_;
  double looked_ = 0, now_ = 0, judges_from_ = 0;
};

}  // namespace

class Watch::Body {
 public:
  explicit Body(const Options& options)
      : options_(options), interval_(std::clamp(options.limit_seconds / 10, 0.01, kLongestInterval)) {
    thread_ = quiet_thread([this] { run(); });
  }
  ~Body() {
    const bool failed = std::uncaught_exceptions() > 0;
    note_wait("end of the job", "all ranks");
    leaving_ = failed ? WatchMessage::failed : WatchMessage::done;
    const uint64_t one = 1;
    while (::write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
    ::close(wake_);
  }

  double connect(const MpiSession& mpi) {
    Meeting m = mpi.size() > 1 ? meet(mpi) : meet_nobody();
    for (size_t i = 0; i < m.places.size(); ++i) m.places[i].log = options_.log_of(static_cast<int>(i));
    const std::lock_guard lock(mutex_);
    connected_ = true;
    tells_ = mpi.rank() == 0 && options_.tell_seconds > 0;
    if (m.sees_all) {
      rank_ = mpi.rank();
      job_ = m.job;
      lines_ = std::move(m.lines);
      if (m.is_hub)
        hub_.emplace(std::move(m.listener), rank_, job_, m.places, options_.limit_seconds, clock_.now());
    } else if (mpi.rank() == 0) {
      log::warn(
          "ranks cannot reach each other over TCP: their progress is not seen, and a wait ends after {} s",
          options_.limit_seconds);
    }
    return m.sees_all ? std::numeric_limits<double>::infinity() : options_.limit_seconds;
  }

 private:
  void run() {
    for (bool last = false; !last;) {
      last = leaving_ >= 0;
      wait();
      const std::lock_guard lock(mutex_);
      clock_.look();
      if (!connected_)
        look_at_start();
      else if (last)
        say_goodbye();
      else
        look_at_ranks();
      // Others may still be at work, or be stopped on their way out.
      if (last && leaving_ == WatchMessage::done && rank_ == 0 && hub_ && !hub_->all_others_left())
        last = false;
    }
  }

  void wait() {
    std::vector<pollfd> wanted;
    {
      const std::lock_guard lock(mutex_);
      for (const Socket& line : lines_)
        if (line) wanted.push_back({line.descriptor(), POLLIN, 0});
      if (hub_) hub_->add_to(wanted);
    }
    if (leaving_ < 0) wanted.push_back({wake_, POLLIN, 0});
    ::poll(wanted.data(), wanted.size(), kTick);
  }

  void look_at_start() {
    if (clock_.now() < next_message_) return;
    next_message_ = clock_.now() + interval_;
    scan_.look(clock_.now());
    const std::string text =
        scan_.speaks(clock_.now()) ? scan_.report(clock_.now(), options_.limit_seconds) : "";
    if (!text.empty()) end_job(Exit::hang, text, options_.report_file);
  }

  void look_at_ranks() {
    const ProgressState mine = progress_state();
    const bool due = clock_.now() >= next_message_ || mine.phase != told_.phase || mine.step != told_.step;
    if (due) next_message_ = clock_.now() + interval_;
    if (due) told_ = mine;
    const WatchMessage message{job_, rank_, WatchMessage::alive, mine};
    for (Socket& line : lines_) {
      if (!line) continue;
      if (due) line.send(&message, sizeof message);
      std::string bytes;
      if (!line.receive(bytes)) line = Socket();
      int32_t code = 0;
      if (bytes.size() < sizeof code) continue;
      std::memcpy(&code, bytes.data(), sizeof code);
      std::this_thread::sleep_for(std::chrono::seconds(1));  // the launcher is faster where there is one
      leave_at_once(code);
    }
    if (hub_) hub_->look(mine, clock_.now());
    if (tells_ && line_.looks(clock_.now())) tell(mine);
    clock_.look();  // what was just seen may have come to pass while this process was stopped
    if (!hub_ || !clock_.may_judge()) return;
    // A launcher that ends the job sends SIGTERM first: what dies then did not end it.
    if (const std::optional<Verdict> verdict = hub_->judge(clock_.now(), /*deaths=*/!ended_by_launcher())) {
      const bool resumable = verdict->died && patiently_true(options_.has_checkpoint);
      const Exit code = !verdict->died ? Exit::hang : resumable ? Exit::retry : Exit::internal;
      hub_->send_end(static_cast<int32_t>(code));
      end_job(code, verdict->text, options_.report_file);
    }
  }

  void tell(const ProgressState& mine) {
    const std::string text = line_.due(hub_ ? hub_->states() : std::vector{mine}, clock_.now());
    if (!text.empty()) options_.tell(text);
  }

  void say_goodbye() {
    if (tells_) options_.tell("");
    const WatchMessage message{job_, rank_, static_cast<WatchMessage::Kind>(leaving_.load()),
                               progress_state()};
    for (Socket& line : lines_)
      for (int tries = 0; line && !line.send(&message, sizeof message) && tries < 20; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lines_.clear();
    if (hub_) hub_->look(progress_state(), clock_.now());
    clock_.look();
    if (!hub_ || leaving_ == WatchMessage::failed || !clock_.may_judge()) return;
    if (const std::optional<Verdict> verdict = hub_->judge(clock_.now(), /*deaths=*/false)) {
      hub_->send_end(static_cast<int32_t>(Exit::hang));
      end_job(Exit::hang, verdict->text, options_.report_file);
    }
  }

  const Options options_;
  const double interval_;
  std::atomic<int> leaving_ = -1;  // a kind of message, once this rank leaves
  StartScan scan_;                 // of the thread alone
  std::mutex mutex_;               // of what follows
  OwnClock clock_{options_.limit_seconds};
  bool connected_ = false;
  int32_t rank_ = 0;
  WatchWord job_ = {};
  std::vector<Socket> lines_;  // to the hubs that are not this rank
  std::optional<WatchHub> hub_;
  double next_message_ = 0;
  ProgressState told_;
  bool tells_ = false;
  ProgressLine line_{options_.tell_seconds};
  int wake_ = ::eventfd(0, EFD_CLOEXEC);  // for the end
  std::thread thread_;
};

Watch::Watch(const Options& options) : body_(std::make_unique<Body>(options)) {}
Watch::~Watch() = default;
double Watch::connect(const MpiSession& mpi) { return body_->connect(mpi); }

}  // namespace temper
