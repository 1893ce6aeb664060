#pragma once
// The requests that an engine works on, and what their samples have so far: they are given out when all of a
// request are put away.

#include <map>
#include <utility>
#include <vector>

#include "src/rollout/request.h"
#include "src/rollout/sequence.h"

namespace temper {

class OpenRequests {
 public:
  struct Finished {
    size_t request = 0;
    std::vector<Response> responses;  // in order of sample
  };

  /// `version`: of the weights that generate.
  explicit OpenRequests(int64_t version) : version_(version) {}

  /// `at_work`: Sequence::ends of its prompt. Returns its number: 0, 1, 2, ...
  size_t add(size_t at_work, std::vector<Response> responses, bool after_stop);
  /// What an earlier call generated of a sample, once; and how many tokens of it this call makes again, after
  /// a stop.
  std::pair<Response, int64_t> take_begun(const Sequence& s);
  /// The sample has ended, or is cut.
  void put_away(Sequence& s);
  /// No sample of the prompt was begun in this call, or it has none.
  void put_away_prompt(const Sequence& prompt);
  /// So many ends of a request were cancelled; what is left of it is given to nobody.
  void cancel(size_t request, size_t ends);
  std::vector<Finished> take_finished() { return std::exchange(finished_, {}); }

 private:
  struct Open {
    size_t at_work = 0;  // ends that are to come
    std::vector<Response> responses;
    bool after_stop = false;
    bool cancelled = false;
  };
  void end_work(size_t request, size_t ends);

  int64_t version_;
  size_t num_requests_ = 0;
  std::map<size_t, Open> open_;  // by number
  std::vector<Finished> finished_;
};

}  // namespace temper
