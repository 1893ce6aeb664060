#include "src/core/text/block_reader.h"

#include <zstd.h>

#include <algorithm>

namespace temper {
namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;
constexpr std::string_view kMagic = "\x28\xb5\x2f\xfd";

[[noreturn]] void fail_damaged(const std::string& path, const std::string& why) {
  fail(Exit::data, {.what = "a packed file cannot be read",
                    .where = path,
                    .why = why,
                    .fix = "take a whole copy of it; `zstd -t FILE` tests one"});
}

}  // namespace

struct BlockReader::Unpacker {
  ~Unpacker() { ZSTD_freeDStream(stream); }
  ZSTD_DStream* stream = ZSTD_createDStream();
  std::string packed;
  size_t at = 0;        // in `packed`
  bool between = true;  // no frame is open
};

BlockReader::BlockReader(const std::string& path, Digest* digest) : file_(path), digest_(digest) {
  std::string first(kMagic.size(), '\0');
  if (file_.size() < static_cast<int64_t>(first.size())) return;
  file_.read(first.data(), 0, static_cast<int64_t>(first.size()));
  if (first == kMagic) unpacker_ = std::make_unique<Unpacker>();
}

BlockReader::~BlockReader() = default;

bool BlockReader::read(std::string& bytes) {
  bytes.resize(static_cast<size_t>(std::min(kBlockBytes, file_.size() - offset_)));
  file_.read(bytes.data(), offset_, static_cast<int64_t>(bytes.size()));
  offset_ += static_cast<int64_t>(bytes.size());
  if (digest_) digest_->update(bytes.data(), static_cast<int64_t>(bytes.size()));
  return !bytes.empty();
}

bool BlockReader::next(std::string& block) {
  if (!unpacker_) return read(block);
  Unpacker& u = *unpacker_;
  block.resize(static_cast<size_t>(kBlockBytes));
  ZSTD_outBuffer out{block.data(), block.size(), 0};
  for (;;) {
    ZSTD_inBuffer in{u.packed.data(), u.packed.size(), u.at};
    const size_t wanted = ZSTD_decompressStream(u.stream, &out, &in);
    if (ZSTD_isError(wanted)) fail_damaged(file_.path(), ZSTD_getErrorName(wanted));
    const bool moved = in.pos > u.at || out.pos > 0;
    u.at = in.pos;
    if (moved) u.between = wanted == 0;
    if (out.pos > 0) {
      block.resize(out.pos);
      return true;
    }
    if (u.at < u.packed.size()) continue;
    u.at = 0;
    if (read(u.packed)) continue;
    if (!u.between)
      fail_damaged(file_.path(), fmt::format("it ends after {} bytes, within a frame", offset_));
    return false;
  }
}

std::string zstd_packed(std::string_view text) {
  constexpr int kLevel = 3;
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> packer(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(packer.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(packer.get(), ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const size_t bytes = ZSTD_compress2(packer.get(), packed.data(), packed.size(), text.data(), text.size());
  CHECK(!ZSTD_isError(bytes), "zstd: {}", ZSTD_getErrorName(bytes));
  packed.resize(bytes);
  return packed;
}

}  // namespace temper
