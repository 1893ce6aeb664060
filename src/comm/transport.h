#pragma once
// How bytes of tensors get from rank to rank of one axis. All collectives (comm/collectives.h) are made of
// this one call, so a new way to carry bytes is one class.

#include <cstdint>
#include <memory>
#include <span>

#include "src/core/lane.h"
#include "src/ops/peers/peer_exchange.h"

namespace temper {

/// Bytes that go to a rank of the axis, which are only read, or come from it.
struct Parcel {
  int peer = 0;
  void* data = nullptr;
  int64_t bytes = 0;
};
/// All of a tensor.
inline Parcel parcel(int peer, const CTensor& t) { return {peer, const_cast<void*>(t.data), t.bytes()}; }

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// For people: "NCCL".
  virtual const char* carrier() const = 0;
  /// Whether an exchange may be recorded in a device::Graph, by all ranks at the same one.
  virtual bool can_record() const { return false; }
  /// Sends all of `out` and receives all of `in`, memory of the lane's device, in order of the lane. Between
  /// two ranks parcels arrive in the order of the lists; both sides name the same sizes. No rank sends to
  /// itself. Ranks make the same calls, or such as one schedule of all of them gives: a call of up to 1 GiB
  /// may be several of the other side, if these do not wait for a parcel of it before they let an earlier one
  /// go, earlier in either list. Returns when `in` may be used on the lane and `out` written again.
  /// Exit::hang names `what` and the axis.
  virtual void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in,
                        const char* what) = 0;
  /// The same of all ranks at once, where each sends something to every other one: the longest parcel that a
  /// rank sends or receives is as long as that of any other rank.
  virtual void exchange_all(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in,
                            const char* what) {
    exchange(lane, out, in, what);
  }
  /// Whether `exchange_sum` is to be called: the same on all ranks.
  virtual bool adds() const { return false; }
  /// As exchange_all: sends all of `out` while every other rank sends this one a parcel of the size of
  /// sum.own, and adds what comes to that; none where it is empty. sum.to is sum.own or apart from all that
  /// is sent.
  virtual void exchange_sum(Lane& /*lane*/, std::span<const Parcel> /*out*/, const RankSum& /*sum*/,
                            const char* what) {
    CHECK(false, "{}: {} adds nothing", what, carrier());
  }
};

}  // namespace temper
