#include "src/io/hf/hf_import.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <future>
#include <map>
#include <set>
#include <span>

#include "src/core/check.h"
#include "src/core/digest/hash.h"
#include "src/io/elements.h"
#include "src/io/json_members.h"

namespace temper {
namespace {

constexpr int64_t kWindowBytes = int64_t{16} << 20;
/// The size of a piece as stored: twice as wide in memory it still fits into a window. The digest follows
/// from it.
constexpr int64_t kPieceBytes = int64_t{8} << 20;

std::string embedding_of(const ModelConfig& config) { return config.tensor_prefix + "embed_tokens.weight"; }

/// "[3, 17]" of a flat element index.
std::string index_text(const std::vector<int64_t>& shape, int64_t element) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0; element /= shape[i]) index[i] = element % shape[i];
  return shape_text(index);
}

/// Layer number of "model.layers.<n>....", or -1.
int64_t layer_of(std::string_view name, const ModelConfig& config) {
  const std::string prefix = config.tensor_prefix + "layers.";
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  int32_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const bool number = error == std::errc{} && layer >= 0 && end != name.data() + name.size() && *end == '.';
  return number ? layer : -1;
}

void check_part(const ModelFolder& folder, const ParamSpec& spec, const HfPart& part) {
  const auto it = folder.tensors().find(part.name);
  if (it == folder.tensors().end())
    fail(Exit::data, {.what = "tensor " + quote_name(part.name) + " is missing",
                      .where = folder.path(),
                      .why = "config.json asks for it, with shape " + shape_text(part_shape(spec, part)),
                      .fix = "fetch the weights again, or correct config.json"});
  const TensorInfo& info = it->second;
  if (info.shape != part_shape(spec, part))
    fail(Exit::data, {.what = "tensor " + quote_name(part.name) + " has the wrong shape",
                      .where = join_path(folder.path(), info.file),
                      .why = fmt::format("it is {}, config.json asks for {}", shape_text(info.shape),
                                         shape_text(part_shape(spec, part))),
                      .fix = "weights and config.json belong to different models; fetch both again"});
  if (!float_dtype(info.dtype))
    fail(Exit::data, {.what = "tensor " + quote_name(part.name) + " has an unsupported type",
                      .where = join_path(folder.path(), info.file),
                      .why = info.dtype + "; weights are BF16, F16, F32 or F64",
                      .fix = "use an unquantised release of the model"});
}

void check_tied_head_shape(const ModelFolder& folder, const std::string& name, const std::string& tied_to) {
  const TensorInfo& head = folder.tensors().at(name);
  const TensorInfo& embedding = folder.tensors().at(tied_to);
  if (head.shape != embedding.shape || !float_dtype(head.dtype))
    fail(Exit::data,
         {.what = "tensor " + quote_name(name) + " differs from the embedding it is tied to",
          .where = join_path(folder.path(), head.file),
          .why = fmt::format("it is {} {}, {} is {} {}", head.dtype, shape_text(head.shape), tied_to,
                             embedding.dtype, shape_text(embedding.shape)),
          .fix = "set tie_word_embeddings to false to keep a head of its own, or remove the tensor"});
}

void make_room(std::vector<char>& window, int64_t bytes) {
  if (std::ssize(window) < bytes) window.resize(static_cast<size_t>(bytes));
}

/// Elements of a tensor as the type of `out`; a value that is not finite there is refused. Returns where they
/// lie as stored: in `out`, or in the window where that is another type.
const void* read_window(const ModelFolder& folder, const std::string& name, FlatRange elements, void* out,
                        DType type, std::vector<char>& window) {
  const TensorInfo& info = folder.tensors().at(name);
  const DType from = *float_dtype(info.dtype);
  if (from != type) make_room(window, elements.size() * dtype_size(from));
  void* raw = from == type ? out : window.data();
  folder.read(name, elements.begin, elements.size(), raw);
  const int64_t bad = convert_elements(out, type, raw, from, elements.size());
  if (bad < 0) return raw;
  fail(Exit::data, {.what = "tensor " + quote_name(name) + " holds a value that is not finite",
                    .where = join_path(folder.path(), info.file),
                    .why = fmt::format("element {} is {} ({}), stored as {}",
                                       index_text(info.shape, elements.begin + bad),
                                       element_value(raw, from, bad), info.dtype, dtype_name(type)),
                    .fix = "fetch the weights again; if they were trained like this they cannot be used"});
}

/// By the ranks in turn.
void check_tied_head(const ModelFolder& folder, const std::string& name, const std::string& tied_to,
                     const Comm* ranks) {
  const int64_t count = folder.tensors().at(name).num_elements();
  const int64_t step = kWindowBytes / dtype_size(DType::f64), size = ranks != nullptr ? ranks->size() : 1,
                first_step = ranks != nullptr ? ranks->rank() : 0;
  const auto most = static_cast<size_t>(std::min(step, count));
  std::vector<double> head(most), embedding(most);
  std::vector<char> window;
  for (int64_t first = first_step * step; first < count; first += size * step) {
    const int64_t n = std::min(step, count - first);
    read_window(folder, name, {first, first + n}, head.data(), DType::f64, window);
    read_window(folder, tied_to, {first, first + n}, embedding.data(), DType::f64, window);
    const auto [at, other] = std::mismatch(head.begin(), head.begin() + n, embedding.begin());
    if (at == head.begin() + n) continue;
    const TensorInfo& info = folder.tensors().at(name);
    fail(Exit::data,
         {.what = "tensor " + quote_name(name) + " differs from the embedding it is tied to",
          .where = join_path(folder.path(), info.file),
          .why = fmt::format("element {} is {}, {} has {}; config.json says tie_word_embeddings",
                             index_text(info.shape, first + (at - head.begin())), *at, tied_to, *other),
          .fix = "set tie_word_embeddings to false to keep a head of its own, or remove the tensor"});
  }
}

/// Elements of a tensor; where this rank's own of them go, [begin, end) of the piece; and the digest of its
/// bytes as stored, once they were all read.
struct Piece {
  const Parameter* of;
  const std::string* tensor;
  int64_t first, count;
  int64_t begin = 0, end = 0;
  char* to = nullptr;
  std::string digest = {};

  FlatRange all() const { return {first, first + count}; }
  FlatRange own() const { return {first + begin, first + end}; }
};

/// The pieces of all tensors, in the order of the store; the same ones whatever type that has, and whatever a
/// rank has of it.
std::vector<Piece> pieces_of(const ModelFolder& folder, const ParameterStore& store) {
  std::vector<Piece> pieces;
  for (const Parameter& p : store.list()) {
    if (p.spec.whose == Whose::adapter) continue;
    const int64_t size = dtype_size(p.value.dtype);
    const int64_t width = p.spec.size() / p.spec.shape[0];
    int64_t rows_before = 0, in_tensor = 0;  // those of the part, and of them those of the same tensor
    for (size_t i = 0; i < p.spec.parts.size(); ++i) {
      const HfPart& part = p.spec.parts[i];
      const RowSpan& span = p.spans[i];
      if (i == 0 || p.spec.parts[i - 1].name != part.name) in_tensor = 0;
      const int64_t begin = in_tensor * width, end = begin + part.rows * width;
      const int64_t own = begin + (span.whole - rows_before) * width, own_end = own + span.rows * width;
      char* to = static_cast<char*>(p.value.raw()) + span.own * width * size;
      const int64_t step = kPieceBytes / dtype_size(*float_dtype(folder.tensors().at(part.name).dtype));
      for (int64_t first = begin; first < end; first += step) {
        Piece piece{&p, &part.name, first, std::min(step, end - first)};
        piece.begin = std::clamp<int64_t>(own - first, 0, piece.count);
        piece.end = std::clamp<int64_t>(own_end - first, piece.begin, piece.count);
        piece.to = to;
        to += (piece.end - piece.begin) * size;
        pieces.push_back(piece);
      }
      rows_before += part.rows, in_tensor += part.rows;
    }
  }
  return pieces;
}

DType stored_type(const ModelFolder& folder, const Piece& piece) {
  return *float_dtype(folder.tensors().at(*piece.tensor).dtype);
}

/// Fills `out` with this rank's own; where they are all, the piece has its digest.
void read_own(const ModelFolder& folder, Piece& piece, void* out, DType type, std::vector<char>& window) {
  if (piece.own().size() == 0) return;
  const void* raw = read_window(folder, *piece.tensor, piece.own(), out, type, window);
  if (piece.own().size() == piece.count)
    piece.digest = digest_hex(raw, piece.count * dtype_size(stored_type(folder, piece)));
}

constexpr size_t kDigits = 32;  // of a digest

/// Every piece that a rank has a digest of has it on all of them.
void share_digests(const ModelFolder& folder, std::span<Piece> pieces, Comm& ranks) {
  constexpr size_t kAtOnce = 2048;
  const std::string none(kDigits, ' ');
  for (size_t begin = 0; begin < pieces.size(); begin += kAtOnce) {
    const std::span<Piece> some = pieces.subspan(begin, std::min(kAtOnce, pieces.size() - begin));
    std::string own;
    for (const Piece& piece : some) own += piece.digest.empty() ? none : piece.digest;
    for (const std::string& of_rank : ranks.all_gather(own, "digests of weights"))
      for (size_t i = 0; i < some.size(); ++i) {
        const std::string digest = of_rank.substr(i * kDigits, kDigits);
        if (digest == none || digest == some[i].digest) continue;
        if (some[i].digest.empty())
          some[i].digest = digest;
        else
          fail(Exit::data, {.what = "tensor " + quote_name(*some[i].tensor) + " is not the same on all ranks",
                            .where = join_path(folder.path(), folder.tensors().at(*some[i].tensor).file),
                            .why = fmt::format("elements {} to {} have the digests {} and {}", some[i].first,
                                               some[i].all().end, some[i].digest, digest),
                            .fix = "let all ranks read the same files, and write none of them meanwhile"});
      }
  }
}

/// Pieces that no rank has whole are read for their digests, by the ranks in turn.
void complete_digests(const ModelFolder& folder, std::span<Piece> pieces, Comm* ranks) {
  if (ranks != nullptr) share_digests(folder, pieces, *ranks);
  const int size = ranks != nullptr ? ranks->size() : 1, rank = ranks != nullptr ? ranks->rank() : 0;
  std::vector<char> window;
  int turn = 0;
  bool shared = true;
  for (Piece& piece : pieces) {
    if (!piece.digest.empty()) continue;
    shared = size == 1;
    if (turn++ % size != rank) continue;
    const int64_t bytes = piece.count * dtype_size(stored_type(folder, piece));
    make_room(window, bytes);
    folder.read(*piece.tensor, piece.first, piece.count, window.data());
    piece.digest = digest_hex(window.data(), bytes);
  }
  if (!shared) share_digests(folder, pieces, *ranks);
}

/// The digest of lines "name dtype shape digest ...", a tensor each, in the order of their names.
FileDigest digest_of(const ModelFolder& folder, const std::vector<Piece>& pieces) {
  std::map<std::string, std::string> lines;
  int64_t bytes = 0;
  for (const Piece& piece : pieces) {
    const TensorInfo& info = folder.tensors().at(*piece.tensor);
    std::string& line = lines[*piece.tensor];
    if (line.empty()) line = fmt::format("{} {} {}", *piece.tensor, info.dtype, shape_text(info.shape));
    line += " " + piece.digest;
    bytes += piece.count * dtype_size(*float_dtype(info.dtype));
  }
  Digest digest;
  for (const auto& [name, line] : lines) {
    digest.update(line.data(), static_cast<int64_t>(line.size()));
    digest.update("\n", 1);
  }
  return {folder.path(), bytes, digest.hex()};
}

bool ends_parameter(std::span<const Piece> pieces, const Piece& piece) {
  return &piece == &pieces.back() || (&piece)[1].of != piece.of;
}

void import_to_host(const ModelFolder& folder, ParameterStore& store, std::span<Piece> pieces) {
  std::vector<char> window;
  for (Piece& piece : pieces) {
    read_own(folder, piece, piece.to, piece.of->value.dtype, window);
    if (ends_parameter(pieces, piece)) store.filled(*piece.of);
  }
}

/// Several windows at a time: files are read and checked by threads, and sent to the GPU in order.
void import_to_gpu(const ModelFolder& folder, ParameterStore& store, std::span<Piece> pieces) {
  constexpr size_t kWindows = 8;
  std::vector<device::PinnedMemory> pinned;
  for (size_t i = 0; i < kWindows; ++i) pinned.push_back(device::make_pinned(kWindowBytes));
  std::vector<std::vector<char>> raw(kWindows);
  Lane lane(store.device());
  for (size_t begin = 0; begin < pieces.size(); begin += kWindows) {
    std::vector<std::future<void>> reads;
    for (size_t i = 0; i < std::min(kWindows, pieces.size() - begin); ++i)
      reads.push_back(std::async(std::launch::async, [&, i] {
        Piece& piece = pieces[begin + i];
        read_own(folder, piece, pinned[i].get(), piece.of->value.dtype, raw[i]);
      }));
    for (size_t i = 0; i < reads.size(); ++i) {
      reads[i].get();
      const Piece& p = pieces[begin + i];
      device::copy_to_device(lane, p.to, pinned[i].get(), p.own().size() * dtype_size(p.of->value.dtype));
      if (!store.split() || !ends_parameter(pieces, p)) continue;
      lane.wait();
      store.filled(*p.of);
    }
    lane.wait();
  }
}

}  // namespace

bool is_kept_tensor(const std::string& name, const ModelConfig& config) {
  const bool of_others = std::any_of(config.kept_tensors.begin(), config.kept_tensors.end(),
                                     [&](const std::string& prefix) { return name.starts_with(prefix); });
  return of_others || name.ends_with(".rotary_emb.inv_freq") || layer_of(name, config) >= config.num_layers;
}

bool is_tied_head(const std::string& name, const ModelConfig& config) {
  return config.tie_word_embeddings && name == "lm_head.weight";
}

std::vector<int64_t> part_shape(const ParamSpec& spec, const HfPart& part) {
  std::vector<int64_t> shape = spec.row_shape;
  if (shape.empty()) shape.assign(spec.shape.begin() + 1, spec.shape.end());
  shape.insert(shape.begin(), part.rows);
  return shape;
}

std::vector<std::string> check_weights(const ModelFolder& folder, const ModelConfig& config,
                                       const std::vector<ParamSpec>& specs) {
  std::set<std::string> used;
  std::vector<std::string> left_over;
  for (const ParamSpec& spec : specs)
    for (const HfPart& part : tensors_of(spec)) {
      if (spec.whose == Whose::adapter) continue;
      check_part(folder, spec, part);
      used.insert(part.name);
    }
  for (const auto& [name, info] : folder.tensors()) {
    if (used.contains(name) || is_kept_tensor(name, config)) continue;
    if (is_tied_head(name, config))
      check_tied_head_shape(folder, name, embedding_of(config));
    else if (folder.may_be_unused(name))
      left_over.push_back(name);
    else
      fail(Exit::data, {.what = "tensor " + quote_name(name) + " does not belong to the model",
                        .where = join_path(folder.path(), info.file),
                        .why = "config.json (" + config.family + ") describes no such weight",
                        .fix = "correct config.json, remove the tensor, or name it in model.allow_unused"});
  }
  return left_over;
}

std::string digest_of_weights(const ModelFolder& folder, const ModelConfig& config,
                              const std::vector<ParamSpec>& specs) {
  check_weights(folder, config, specs);
  ParameterStore shapes;
  for (const ParamSpec& spec : specs) shapes.add(spec);
  shapes.allocate(DType::f64, /*with_gradients=*/false, Device::meta);
  std::vector<Piece> pieces = pieces_of(folder, shapes);
  std::vector<char> window;
  std::vector<double> values;
  for (Piece& piece : pieces) {
    values.resize(std::max(values.size(), static_cast<size_t>(piece.own().size())));
    read_own(folder, piece, values.data(), DType::f64, window);
  }
  return digest_of(folder, pieces).digest;
}

FileDigest import_weights(const ModelFolder& folder, const ModelConfig& config, ParameterStore& store,
                          Comm* ranks) {
  std::vector<ParamSpec> specs;
  for (const Parameter& p : store.list()) specs.push_back(p.spec);
  check_weights(folder, config, specs);
  for (const auto& [name, info] : folder.tensors())
    if (is_tied_head(name, config)) check_tied_head(folder, name, embedding_of(config), ranks);
  std::vector<Piece> pieces = pieces_of(folder, store);
  if (store.device() == Device::cuda)
    import_to_gpu(folder, store, pieces);
  else
    import_to_host(folder, store, pieces);
  complete_digests(folder, pieces, ranks);
  return digest_of(folder, pieces);
}

}  // namespace temper
