#include "src/run/exchange/weight_transfer.h"

#include <cstring>
#include <set>

#include "src/ops/digest.h"

namespace temper {
namespace {

struct Header {
  int64_t version = 0;
  uint64_t digest = 0;
};

/// `row`: of the sender or of the receiver.
char* rows_of(const ParameterStore& weights, const WeightPiece& piece, int64_t row) {
  return static_cast<char*>(weights.list()[piece.parameter].value.raw()) +
         piece.bytes / piece.move.rows * row;
}

/// The digest of rows of a store, in the order of the plan.
class RowsDigest {
 public:
  explicit RowsDigest(Ctx& c) : c_(c), scope_(c.scratch), sum_(c.scratch.make({2}, DType::i32)) {
    device::fill(c.lane, sum_.raw(), 0, sum_.bytes());
  }
  void add(const ParameterStore& weights, const WeightPiece& piece, int64_t row) {
    const DType dtype = weights.list()[piece.parameter].value.dtype;
    const int64_t elements = piece.bytes / dtype_size(dtype);
    add_digest(c_, sum_, make_tensor(rows_of(weights, piece, row), dtype, {elements}), words_);
    words_ += digest_words(piece.bytes);
  }
  uint64_t value() const {
    uint64_t digest = 0;
    device::copy_from_device(c_.lane, &digest, sum_.data, sum_.bytes());
    return digest;
  }

 private:
  Ctx& c_;
  ArenaScope scope_;
  Tensor sum_;
  int64_t words_ = 0;
};

}  // namespace

WeightTransfer::WeightTransfer(const ParameterStore& weights, const Holders& sources,
                               const ShardPlace& receiver, int self, device::HostWindows& windows)
    : self_(self), windows_(windows) {
  std::set<int> senders;
  for (size_t i = 0; i < weights.list().size(); ++i) {
    const Parameter& p = weights.list()[i];
    const ParamSpec& spec = p.spec;
    if (spec.whose == Whose::base) continue;  // every rank has it from the model folder
    const int64_t row_bytes = spec.size() / spec.shape.front() * dtype_size(p.value.dtype);
    for (const RowMove& move : row_moves(spec, sources, receiver, self)) {
      pieces_.push_back({i, move, move.rows * row_bytes});
      if (move.holder != self) senders.insert(move.holder);
    }
  }
  senders_.assign(senders.begin(), senders.end());
}

int64_t WeightTransfer::bytes_from(int source) const {
  int64_t bytes = 0;
  for (const WeightPiece& piece : pieces_)
    if (piece.move.holder == source) bytes += piece.bytes;
  return bytes;
}

std::string WeightTransfer::notice(Ctx& c, const ParameterStore& weights, int source, int64_t version) const {
  RowsDigest digest(c);
  for (const WeightPiece& piece : pieces_)
    if (piece.move.holder == source) digest.add(weights, piece, piece.move.from);
  const Header header{version, digest.value()};
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

bool WeightTransfer::is_notice(std::string_view message) { return message.size() == sizeof(Header); }

std::vector<int64_t> WeightTransfer::places(const ParameterStore& weights, int source) const {
  const char* const base = static_cast<const char*>(weights.flat_values().raw());
  std::vector<int64_t> at;
  for (const WeightPiece& piece : pieces_)
    if (piece.move.holder == source) at.push_back(rows_of(weights, piece, piece.move.from) - base);
  return at;
}

std::string WeightTransfer::message(Ctx& c, const ParameterStore& weights, int source, int64_t version,
                                    std::string into) const {
  std::string bytes = std::move(into);
  bytes.assign(notice(c, weights, source, version));
  bytes.reserve(bytes.size() + static_cast<size_t>(bytes_from(source)));
  for (const WeightPiece& piece : pieces_)
    if (piece.move.holder == source)
      windows_.read(rows_of(weights, piece, piece.move.from), piece.bytes,
                    [&](const char* from, int64_t count) { bytes.append(from, static_cast<size_t>(count)); });
  return bytes;
}

void WeightTransfer::copy_rows(Lane& lane, const ParameterStore& weights, int source, char* to) const {
  for (const WeightPiece& piece : pieces_) {
    if (piece.move.holder != source) continue;
    device::copy_to_pinned(lane, to, rows_of(weights, piece, piece.move.from), piece.bytes);
    to += piece.bytes;
  }
}

const char* WeightTransfer::rows_in(std::string_view message) { return message.data() + sizeof(Header); }

void WeightTransfer::look_into(const ParameterStore& weights, int source, const char* rows,
                               const See& see) const {
  for (const WeightPiece& piece : pieces_) {
    if (piece.move.holder != source) continue;
    see(weights.list()[piece.parameter], piece, rows);
    rows += piece.bytes;
  }
}

uint64_t WeightTransfer::take_rows(Ctx& c, ParameterStore& weights, int source,
                                   std::string_view message) const {
  RowsDigest digest(c);
  const See write = [&](const Parameter&, const WeightPiece& piece, const char* from) {
    windows_.write(
        rows_of(weights, piece, piece.move.to), piece.bytes,
        [&](char* to, int64_t at, int64_t bytes) { std::memcpy(to, from + at, static_cast<size_t>(bytes)); });
    digest.add(weights, piece, piece.move.to);
  };
  look_into(weights, source, rows_in(message), write);
  return digest.value();
}

/// The digest of a piece runs beside the copies of those behind it.
uint64_t WeightTransfer::read_rows(Ctx& c, ParameterStore& weights, int source,
                                   const WeightMemory& memory) const {
  RowsDigest digest(c);
  Lane copies(c.device);
  copies.follow(c.lane);
  size_t next = 0;
  for (const WeightPiece& piece : pieces_) {
    if (piece.move.holder != source) continue;
    device::copy(copies, rows_of(weights, piece, piece.move.to), memory.base + memory.at.at(next++),
                 piece.bytes);
    c.lane.follow(copies);
    digest.add(weights, piece, piece.move.to);
  }
  return digest.value();
}

void WeightTransfer::apply(Ctx& c, ParameterStore& weights, int source, int64_t version,
                           std::string_view message, const WeightMemory& memory) const {
  const bool reads = memory.base != nullptr;
  const auto expected = static_cast<size_t>(reads ? 0 : bytes_from(source)) + sizeof(Header);
  CHECK(message.size() == expected, "weights from trainer {}: {} bytes instead of {}", source, message.size(),
        expected);
  Header said;
  std::memcpy(&said, message.data(), sizeof said);
  CHECK(said.version == version, "weights of version {} came, {} is awaited", said.version, version);
  const uint64_t mine =
      reads ? read_rows(c, weights, source, memory) : take_rows(c, weights, source, message);
  if (said.digest != mine)
    fail(Exit::storage,
         {.what = "weights were changed on their way to this rank",
          .where = fmt::format("transfer from trainer rank {}", source),
          .why = fmt::format("digest {:016x} there, {:016x} here", said.digest, mine),
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
