#include "src/core/process/descriptors.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace temper {
namespace {

constexpr size_t kMostDescriptors = 8;

/// A message with room for descriptors; no memory is asked for.
struct Parcel {
  Parcel(void* bytes, size_t size, size_t descriptors) : part{bytes, size} {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptors == 0) return;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * std::min(descriptors, kMostDescriptors));
  }

  iovec part;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)] = {};
  msghdr message{};
};

}  // namespace

void send_descriptors(int socket, const void* bytes, size_t size, std::span<const int> descriptors) {
  Parcel parcel(const_cast<void*>(bytes), size, descriptors.size());
  if (cmsghdr* head = CMSG_FIRSTHDR(&parcel.message)) {
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  ::sendmsg(socket, &parcel.message, MSG_NOSIGNAL);
}

ssize_t receive_descriptors(int socket, void* bytes, size_t size, std::span<int> descriptors) {
  std::fill(descriptors.begin(), descriptors.end(), -1);
  Parcel parcel(bytes, size, descriptors.size());
  ssize_t got;
  do got = ::recvmsg(socket, &parcel.message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  const cmsghdr* const head = got > 0 ? CMSG_FIRSTHDR(&parcel.message) : nullptr;
  if (head && head->cmsg_type == SCM_RIGHTS)
    std::memcpy(descriptors.data(), CMSG_DATA(head),
                std::min<size_t>(head->cmsg_len - CMSG_LEN(0), descriptors.size_bytes()));
  return got;
}

}  // namespace temper
