#pragma once
// A reward program as a shell script, so that tests need no interpreter: it reads lines as a command reward
// writes them and says the number in "answer" as the reward. What the response says makes it misbehave.

#include <string>

namespace temper {

/// Responses that hold a word of these: "die", "hang", "slow" (a second), "lie" (another id), "twice",
/// "flood" (1 GB without an end of line), "chatter" (no JSON), "nan", "daemon" (leaves a process in a session
/// of its own). Each program appends its pid to `pids`, and each misbehaviour its word to `deeds`.
inline constexpr const char* kRewardProgram = R"sh(
echo $$ >> pids
while IFS= read -r line; do
  id=${line##*\"id\":}; id=${id%\}}
  response=${line#*\"response\":\"}; response=${response%%\"*}
  answer=${line#*\"answer\":\"}; answer=${answer%%\"*}
  for deed in die hang slow lie twice flood chatter nan daemon; do
    case $response in *$deed*) echo $deed >> deeds; break ;; *) deed= ;; esac
  done
  case $deed in
    die) exit 3 ;;
    hang) sleep 1000 ;;
    slow) sleep 1 ;;
    lie) id=$((id + 1)) ;;
    twice) echo "{\"id\":$id,\"reward\":$answer}" ;;
    flood) head -c 1000000000 /dev/zero | tr '\0' x ;;
    chatter) echo "thinking about it" ;;
    nan) echo "{\"id\":$id,\"reward\":NaN}" ;;
    daemon) setsid sh -c 'echo $$ >> pids; sleep 1000' & sleep 1000 ;;
  esac
  echo "{\"id\":$id,\"reward\":$answer,\"parts\":{\"twofold\":$((2 * answer))}}"
done
)sh";

}  // namespace temper
