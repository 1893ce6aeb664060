#pragma once
// The parent's end of the lines to its ranks (core/process/local_parent.h). Ranks come over a socket of the
// abstract namespace, those of the same user alone; they get the parent's own stdin, stdout and stderr, and
// tell what they have to.

#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "src/core/process/local_parent.h"

namespace temper {

class RankLines {
 public:
  struct Rank {
    pid_t process = -1;
    int line = -1;  // closed: the process has ended
    bool asks = false;
    std::optional<int> done, failed;

    bool joined() const { return process > 0; }
    bool runs() const { return line >= 0; }
  };

  /// `input`: what rank 0 reads as its stdin; that of all others, and of rank 0 where it is -1, is empty.
  RankLines(int ranks, int input);
  ~RankLines();
  RankLines(const RankLines&) = delete;
  RankLines& operator=(const RankLines&) = delete;

  const std::string& name() const { return name_; }
  void add_to(std::vector<pollfd>& wanted) const;
  /// Takes what has come.
  void look();

  const std::vector<Rank>& ranks() const { return ranks_; }
  /// A signal to any of them saves.
  bool all_ask() const;
  bool all_joined() const;
  bool any_joined() const;
  bool any_runs() const;
  bool all_done() const;
  /// What was told first.
  std::optional<int> failed() const { return failed_; }
  /// The rank that ended first without a word.
  std::optional<int> lost() const { return lost_; }

  /// SIGUSR1 that stands for `meant`, to every rank that runs.
  void hand_on(int meant) const;
  void kill(int signal) const;

 private:
  void welcome();
  bool take_hello(int line);
  void give_descriptors(int line, int rank) const;
  void take_words(size_t rank);

  std::string name_;
  int listener_ = -1, null_ = -1;
  int input_;
  std::vector<int> newcomers_;
  std::vector<Rank> ranks_;
  std::optional<int> failed_, lost_;
};

}  // namespace temper
