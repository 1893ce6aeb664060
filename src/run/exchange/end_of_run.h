#pragma once
// The end of a run before its last step. The first trainer rank tells it to ranks without the trainer role;
// those that wait for groups or for weights look for it and leave.

#include "src/comm/mailbox.h"
#include "src/run/exchange/role_ranks.h"

namespace temper {

class EndOfRun {
 public:
  EndOfRun(Mailbox& mailbox, const RoleRanks& ranks) : mailbox_(mailbox), ranks_(ranks) {}

  /// Trainer ranks: no version of the weights will follow.
  void tell();
  /// This rank was told, as far as messages have come.
  bool look();
  /// As of the last look.
  bool has_come() const { return has_come_; }

 private:
  Mailbox& mailbox_;
  RoleRanks ranks_;
  bool has_come_ = false;
};

}  // namespace temper
