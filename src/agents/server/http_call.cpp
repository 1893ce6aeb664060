#include "src/agents/server/http_call.h"

#include <microhttpd.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr size_t kAtOnce = size_t{64} << 10;  // bytes that a socket takes at once

}  // namespace

void HttpCall::start(State state, int status, const HttpHeaders& headers, const std::string& content_type) {
  CHECK(state_ == State::waiting, "a request was answered twice");
  state_ = state;
  status_ = status;
  headers_ = headers;
  content_type_ = content_type;
}

void HttpCall::reply(int status, std::string body, const HttpHeaders& headers,
                     const std::string& content_type) {
  const std::lock_guard lock(mutex_);
  start(State::whole, status, headers, content_type);
  gone_ = gone_ || has_left();
  if (!gone_) unsent_ = std::move(body);
  wake();
}

void HttpCall::begin(const std::string& content_type, const HttpHeaders& headers) {
  const std::lock_guard lock(mutex_);
  start(State::streaming, 200, headers, content_type);
  wake();
}

void HttpCall::send(const std::string& piece) {
  const std::lock_guard lock(mutex_);
  CHECK(state_ == State::streaming, "a piece of an answer that has not begun or has ended");
  if (gone_ || piece.empty()) return;
  unsent_ += piece;
  if (static_cast<int64_t>(unsent_.size() - taken_) > max_unsent_bytes_) give_up();
  wake();
}

void HttpCall::end() {
  const std::lock_guard lock(mutex_);
  CHECK(state_ == State::streaming, "the end of an answer that has not begun or has ended");
  state_ = State::ended;
  wake();
}

void HttpCall::drop() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::waiting) state_ = State::dropped;
  if (state_ == State::streaming && !finished_) give_up();
  wake();
}

bool HttpCall::answered() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::waiting;
}

bool HttpCall::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

bool HttpCall::delivered() const {
  const std::lock_guard lock(mutex_);
  return delivered_;
}

/// Not what has been given to the library: it says itself what comes of that.
bool HttpCall::lost() const {
  const std::lock_guard lock(mutex_);
  if (finished_) return !delivered_;
  return !on_its_way() && (gone_ || has_left());
}

void HttpCall::set_socket(int socket) {
  const std::lock_guard lock(mutex_);
  socket_ = socket;
}

/// The library has all of the answer. Who has read a stream to its end may leave before the library has
/// closed it.
bool HttpCall::on_its_way() const {
  if (state_ == State::whole) return handed_on_;
  return state_ == State::ended && !gone_ && taken_ == unsent_.size();
}

/// The client has closed its connection, or its writing half.
bool HttpCall::has_left() const {
  pollfd look{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  return !finished_ && socket_ >= 0 && ::poll(&look, 1, 0) > 0;
}

int64_t HttpCall::buffered() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(unsent_.size() - taken_);
}

HttpCall::Next HttpCall::next(MHD_Connection* connection) {
  const std::lock_guard lock(mutex_);
  if (gone_) return Next::close;
  switch (state_) {
    case State::whole:
      gone_ = !handed_on_ && has_left();
      handed_on_ = !gone_;
      return gone_ ? Next::close : Next::whole;
    case State::streaming:
    case State::ended:
      return Next::stream;
    case State::dropped:
      return Next::dropped;
    case State::waiting:
      sleep(connection);
  }
  return Next::wait;
}

ssize_t HttpCall::read(MHD_Connection* connection, char* to, size_t size) {
  const std::lock_guard lock(mutex_);
  if (gone_) return MHD_CONTENT_READER_END_WITH_ERROR;
  const size_t count = std::min(size, unsent_.size() - taken_);
  if (count == 0) {
    if (state_ == State::ended) return MHD_CONTENT_READER_END_OF_STREAM;
    sleep(connection);
    return 0;
  }
  if (has_left()) {
    give_up();
    return MHD_CONTENT_READER_END_WITH_ERROR;
  }
  std::memcpy(to, unsent_.data() + taken_, count);
  taken_ += count;
  if (2 * taken_ >= unsent_.size()) {
    unsent_.erase(0, taken_);
    taken_ = 0;
  }
  return static_cast<ssize_t>(count);
}

void HttpCall::finished(bool delivered) {
  const std::lock_guard lock(mutex_);
  // The library takes a client that leaves right behind the last byte for one that left before it.
  const bool went_out = on_its_way() && (state_ == State::ended || unsent_.size() <= kAtOnce);
  delivered_ = delivered || went_out;
  finished_ = true;
  gone_ = !delivered_;
  std::string().swap(unsent_);
  taken_ = 0;
}

void HttpCall::cancel() {
  const std::lock_guard lock(mutex_);
  if (finished_ || (state_ == State::ended && on_its_way())) return;
  give_up();
  wake();
}

/// A whole answer that is on its way is left as it is: the library reads it where it lies.
void HttpCall::give_up() {
  gone_ = true;
  if (state_ == State::whole) return;
  std::string().swap(unsent_);
  taken_ = 0;
}

void HttpCall::sleep(MHD_Connection* connection) {
  asleep_ = connection;
  MHD_suspend_connection(connection);
}

void HttpCall::wake() {
  if (asleep_ == nullptr) return;
  MHD_resume_connection(asleep_);
  asleep_ = nullptr;
}

}  // namespace temper
