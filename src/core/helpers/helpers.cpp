#include "src/core/helpers/helpers.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "src/core/helpers/keeper.h"
#include "src/core/process/descriptors.h"
#include "src/core/stopwatch.h"

namespace temper {
namespace {

[[noreturn]] void fail_start(const char* what) {
  fail(Exit::environment, {.what = fmt::format("cannot {} the keeper of helper programs", what),
                           .where = "processes of this host",
                           .why = std::strerror(errno),
                           .fix = "raise the limits on processes and files (ulimit -u, ulimit -n)"});
}

[[noreturn]] void fail_keeper() {
  throw KeeperLost(
      {.what = "the keeper of helper programs has ended",
       .where = "processes of this host",
       .why = "it was killed, by hand or for want of memory (see dmesg), and its programs with it",
       .fix = "start the run again"});
}

void close_pipe(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

void append_words(std::string& request, const std::vector<std::string>& words) {
  for (const std::string& word : words) request.append(word.c_str(), word.size() + 1);
}

/// The answer to a request, with the descriptors that came along (-1: none); none where the keeper has ended.
std::optional<KeeperAnswer> receive_answer(int socket, int (&descriptors)[4]) {
  KeeperAnswer answer;
  if (receive_descriptors(socket, &answer, sizeof answer, descriptors) != sizeof answer) return std::nullopt;
  return answer;
}

}  // namespace

Helpers::Helpers() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail_start("reach");
  const pid_t parent = ::getpid();
  keeper_ = ::fork();
  if (keeper_ < 0) fail_start("start");
  if (keeper_ == 0) keep_programs(ends[1], parent);
  ::close(ends[1]);
  socket_ = ends[0];
}

Helpers::~Helpers() {
  constexpr double kPatience = 3;  // seconds: longer than a keeper that runs takes
  ::close(socket_);
  pid_t ended = 0;
  for (const Stopwatch waited; ended == 0 && waited.seconds() < kPatience;) {
    ended = ::waitpid(keeper_, nullptr, WNOHANG);
    if (ended == 0) ::usleep(1000);
  }
  if (ended != 0) return;
  ::kill(keeper_, SIGKILL);
  while (::waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

HelperProgram Helpers::start(const std::vector<std::string>& argv) {
  CHECK(!argv.empty(), "a helper program without a name");
  std::string request(1, kStartProgram);
  append_words(request, argv);
  const HelperProgram program = ask(request);
  if (program.pid > 0) return program;
  fail(Exit::usage,
       {.what = fmt::format("cannot start the program {}", argv[0]),
        .where = fmt::format("{}", fmt::join(argv, " ")),
        .why = std::strerror(program.error),
        .fix = "name a program in PATH, or a path from the working folder that may be executed"});
}

HelperProgram Helpers::start_apart(const std::vector<std::string>& argv,
                                   const std::vector<std::string>& variables) {
  std::string request(1, kStartApart);
  const KeptApart head{static_cast<uint32_t>(argv.size())};
  request.append(reinterpret_cast<const char*>(&head), sizeof head);
  append_words(request, argv);
  append_words(request, variables);
  HelperProgram program = ask(request);
  const bool all = program.input >= 0 && program.output >= 0 && program.errors >= 0 && program.exited >= 0;
  if (program.pid <= 0 || all) return program;
  end(program);  // this process had no room for its pipes
  return {.error = EMFILE};
}

HelperProgram Helpers::ask(const std::string& request) {
  CHECK(request.size() <= kMaxRequest, "a command of {} bytes", request.size());
  const std::lock_guard lock(mutex_);
  if (::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) < 0) fail_keeper();
  int pipes[4] = {-1, -1, -1, -1};
  const std::optional<KeeperAnswer> answer = receive_answer(socket_, pipes);
  if (!answer) fail_keeper();
  if (answer->pid <= 0) return {.error = answer->error};
  return {answer->pid, pipes[0], pipes[1], pipes[2], pipes[3]};
}

bool Helpers::end(HelperProgram& program) noexcept {
  close_pipe(program.input);
  close_pipe(program.output);
  close_pipe(program.errors);
  close_pipe(program.exited);
  if (program.pid <= 0) return true;
  std::string request(1, kEndProgram);
  request.append(reinterpret_cast<const char*>(&program.pid), sizeof program.pid);
  program.pid = -1;
  const std::lock_guard lock(mutex_);
  int none[4] = {-1, -1, -1, -1};
  return ::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) >= 0 && receive_answer(socket_, none);
}

}  // namespace temper
