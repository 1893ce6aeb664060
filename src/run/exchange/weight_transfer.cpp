#include "src/run/exchange/weight_transfer.h"

#include <cstring>

#include "src/core/hash.h"

namespace temper {
namespace {

constexpr size_t kDigestDigits = 32;
constexpr size_t kHeader = sizeof(int64_t) + kDigestDigits;

char* rows_of(const Parameter& p, const WeightPiece& piece) {
  return static_cast<char*>(p.value.raw()) + piece.bytes / piece.rows * piece.begin;
}

}  // namespace

WeightTransfer::WeightTransfer(const ParameterStore& weights, int num_sources)
    : num_sources_(num_sources), windows_(weights.device()), digests_(static_cast<size_t>(num_sources)) {
  for (size_t i = 0; i < weights.list().size(); ++i) {
    const ParamSpec& spec = weights.list()[i].spec;
    const int64_t rows = spec.shape.front(), row_bytes = spec.size() / rows * dtype_size(weights.dtype());
    for (int source = 0; source < num_sources; ++source) {
      const int64_t begin = rows * source / num_sources, end = rows * (source + 1) / num_sources;
      if (begin < end)
        pieces_.push_back({static_cast<int64_t>(i), begin, end - begin, (end - begin) * row_bytes, source});
    }
  }
}

std::string WeightTransfer::digest_of(const ParameterStore& weights) {
  const Tensor flat = weights.flat_values();
  Digest digest;
  windows_.read(flat.raw(), flat.bytes(),
                [&](const char* from, int64_t bytes) { digest.update(from, bytes); });
  return digest.hex();
}

std::string WeightTransfer::message(const ParameterStore& weights, int source, int64_t version) {
  std::string bytes(sizeof version, '\0');
  std::memcpy(bytes.data(), &version, sizeof version);
  bytes += digest_of(weights);
  for (const WeightPiece& piece : pieces_)
    if (piece.source_index == source)
      windows_.read(rows_of(weights.list()[static_cast<size_t>(piece.parameter)], piece), piece.bytes,
                    [&](const char* from, int64_t count) { bytes.append(from, static_cast<size_t>(count)); });
  return bytes;
}

void WeightTransfer::look_into(const ParameterStore& weights, int source, std::string_view message,
                               const See& see) const {
  const char* from = message.data() + kHeader;
  for (const WeightPiece& piece : pieces_) {
    if (piece.source_index != source) continue;
    see(weights.list()[static_cast<size_t>(piece.parameter)], piece, from);
    from += piece.bytes;
  }
}

void WeightTransfer::apply(ParameterStore& weights, int source, int64_t version, std::string_view message) {
  size_t expected = kHeader;
  for (const WeightPiece& piece : pieces_)
    if (piece.source_index == source) expected += static_cast<size_t>(piece.bytes);
  CHECK(message.size() == expected, "weights from trainer {}: {} bytes instead of {}", source, message.size(),
        expected);
  int64_t theirs = 0;
  std::memcpy(&theirs, message.data(), sizeof theirs);
  CHECK(theirs == version, "weights of version {} came, {} is awaited", theirs, version);
  digests_[static_cast<size_t>(source)] = message.substr(sizeof theirs, kDigestDigits);
  look_into(weights, source, message, [&](const Parameter& p, const WeightPiece& piece, const char* from) {
    windows_.write(rows_of(p, piece), piece.bytes, [&](char* to, int64_t at, int64_t bytes) {
      std::memcpy(to, from + at, static_cast<size_t>(bytes));
    });
  });
}

void WeightTransfer::check_digest(const ParameterStore& weights) {
  const std::string mine = digest_of(weights);
  for (int source = 0; source < num_sources_; ++source)
    if (const std::string& theirs = digests_[static_cast<size_t>(source)]; theirs != mine)
      fail(Exit::storage,
           {.what = "weights were changed on their way to this rank",
            .where = fmt::format("transfer from trainer rank {} of {}", source, num_sources_),
            .why = fmt::format("digest {} there, {} here", theirs, mine),
            .fix = "memory or network of a node is faulty: look at its logs, and resume without that node"});
}

}  // namespace temper
