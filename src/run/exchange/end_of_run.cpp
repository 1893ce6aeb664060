#include "src/run/exchange/end_of_run.h"

#include <set>

namespace temper {

void EndOfRun::tell() {
  if (mailbox_.rank() != ranks_.trainer.front()) return;
  std::set<int> others(ranks_.producers.begin(), ranks_.producers.end());
  for (const std::vector<int>& stage : ranks_.stages) others.insert(stage.begin(), stage.end());
  for (const int rank : others)
    if (!ranks_.trains(rank)) mailbox_.post(rank, kEnd, "");
}

bool EndOfRun::look() {
  if (mailbox_.poll(kEnd)) has_come_ = true;
  return has_come_;
}

}  // namespace temper
