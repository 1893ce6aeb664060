#pragma once
// Messages between any two ranks of the world, sent without waiting for the receiver: what roles hand to each
// other while both go on computing. Messages of one sender and channel arrive in the order of sending. How
// much can be under way is for the protocol above to bound (src/run/exchange/group_exchange.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace temper {

struct Message {
  int from = 0;
  std::string bytes;
};

class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual int rank() const = 0;
  /// Returns at once; the bytes are kept until the receiver has them. `to` may be this rank.
  virtual void post(int to, int channel, std::string bytes) = 0;
  /// The same from memory that the caller, and other receivers, have too: nobody writes to it before this
  /// rank alone has it again.
  virtual void post_shared(int to, int channel, std::shared_ptr<const std::string> bytes) = 0;
  /// The next message of the channel from any rank, if one has come; lets messages under way move on.
  virtual std::optional<Message> poll(int channel) = 0;
  /// The memory of a large message, for the next one: new pages can cost more than what comes into them.
  virtual void reuse(std::string memory) = 0;
  /// Bytes posted on the channel and not yet taken by their receivers.
  virtual int64_t outgoing_bytes(int channel) = 0;
  /// A short sleep between polls; after the limit, counted from `waited_seconds` = 0, Exit::hang that names
  /// `what`.
  virtual void pause(double waited_seconds, const char* what) = 0;
};

}  // namespace temper
