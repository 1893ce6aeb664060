#include "src/run/exchange/weight_transfer.h"

#include <cstring>
#include <set>

#include "src/core/hash.h"

namespace temper {
namespace {

constexpr size_t kDigestDigits = 32;
constexpr size_t kHeader = sizeof(int64_t) + kDigestDigits;

/// `row`: of the sender or of the receiver.
char* rows_of(const ParameterStore& weights, const WeightPiece& piece, int64_t row) {
  return static_cast<char*>(weights.list()[piece.parameter].value.raw()) +
         piece.bytes / piece.move.rows * row;
}

}  // namespace

WeightTransfer::WeightTransfer(const ParameterStore& weights, const Holders& sources,
                               const ShardPlace& receiver, int self, device::HostWindows& windows)
    : self_(self), windows_(windows) {
  std::set<int> senders;
  for (size_t i = 0; i < weights.list().size(); ++i) {
    const ParamSpec& spec = weights.list()[i].spec;
    const int64_t row_bytes = spec.size() / spec.shape.front() * dtype_size(weights.dtype());
    for (const RowMove& move : row_moves(spec, sources, receiver, self)) {
      pieces_.push_back({i, move, move.rows * row_bytes});
      if (move.holder != self) senders.insert(move.holder);
    }
  }
  senders_.assign(senders.begin(), senders.end());
}

/// Of the rows of a source as they lie in memory.
std::string WeightTransfer::digest_of(const ParameterStore& weights, int source,
                                      int64_t RowMove::*row) const {
  Digest digest;
  for (const WeightPiece& piece : pieces_)
    if (piece.move.holder == source)
      windows_.read(rows_of(weights, piece, piece.move.*row), piece.bytes,
                    [&](const char* from, int64_t bytes) { digest.update(from, bytes); });
  return digest.hex();
}

std::string WeightTransfer::message(const ParameterStore& weights, int source, int64_t version) const {
  std::string bytes(sizeof version, '\0');
  std::memcpy(bytes.data(), &version, sizeof version);
  bytes += digest_of(weights, source, &RowMove::from);
  for (const WeightPiece& piece : pieces_)
    if (piece.move.holder == source)
      windows_.read(rows_of(weights, piece, piece.move.from), piece.bytes,
                    [&](const char* from, int64_t count) { bytes.append(from, static_cast<size_t>(count)); });
  return bytes;
}

void WeightTransfer::look_into(const ParameterStore& weights, int source, std::string_view message,
                               const See& see) const {
  const char* from = message.data() + kHeader;
  for (const WeightPiece& piece : pieces_) {
    if (piece.move.holder != source) continue;
    see(weights.list()[piece.parameter], piece, from);
    from += piece.bytes;
  }
}

void WeightTransfer::apply(ParameterStore& weights, int source, int64_t version,
                           std::string_view message) const {
  size_t expected = kHeader;
  for (const WeightPiece& piece : pieces_)
    if (piece.move.holder == source) expected += static_cast<size_t>(piece.bytes);
  CHECK(message.size() == expected, "weights from trainer {}: {} bytes instead of {}", source, message.size(),
        expected);
  int64_t theirs = 0;
  std::memcpy(&theirs, message.data(), sizeof theirs);
  CHECK(theirs == version, "weights of version {} came, {} is awaited", theirs, version);
  look_into(weights, source, message, [&](const Parameter&, const WeightPiece& piece, const char* from) {
    windows_.write(
        rows_of(weights, piece, piece.move.to), piece.bytes,
        [&](char* to, int64_t at, int64_t bytes) { std::memcpy(to, from + at, static_cast<size_t>(bytes)); });
  });
  const std::string said(message.substr(sizeof theirs, kDigestDigits)),
      mine = digest_of(weights, source, &RowMove::to);
  if (said != mine)
    fail(Exit::storage,
         {.what = "weights were changed on their way to this rank",
          .where = fmt::format("transfer from trainer rank {}", source),
          .why = fmt::format("digest {} there, {} here", said, mine),
          .fix = "memory or network of a node is faulty: look at its logs, and resume without that node"});
}

void WeightTransfer::copy_own(Lane& lane, ParameterStore& weights, const ParameterStore& trained) const {
  for (const WeightPiece& piece : pieces_)
    if (piece.move.holder == self_)
      device::copy(lane, rows_of(weights, piece, piece.move.to), rows_of(trained, piece, piece.move.from),
                   piece.bytes);
  lane.wait();
}

}  // namespace temper
