#include "src/io/checkpoint/master_reader.h"

#include <bit>

#include "src/core/check.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/io/elements.h"

namespace temper {
namespace {

/// All rows at once: the digest of a shard is made anew for each read of it.
void load_rows(const Manifest& manifest, const Parameter& p, const RowSpan& span, DType dtype,
               device::HostWindows& windows) {
  const int64_t width = p.spec.size() / p.spec.shape[0], count = span.rows * width;
  const DType type = dtype == DType::f64 ? DType::f64 : DType::f32;
  const int64_t from = dtype_size(type), to = dtype_size(dtype);
  std::vector<char> values(static_cast<size_t>(count * from));
  master_reader(manifest)(p.spec, span.whole * width, count, make_tensor(values.data(), type, {count}));
  char* const place = static_cast<char*>(p.value.raw()) + span.own * width * to;
  windows.write(place, count * to, [&](char* window, int64_t at, int64_t bytes) {
    const char* const source = values.data() + at / to * from;
    if (const int64_t bad = convert_elements(window, dtype, source, type, bytes / to); bad >= 0)
      fail(Exit::data, {.what = "a weight of the checkpoint is not finite",
                        .where = fmt::format("{}, {}", manifest.path(), p.spec.name),
                        .why = fmt::format("{} as {}", element_value(source, type, bad), dtype_name(dtype)),
                        .fix = "use another dtype, or an older checkpoint"});
  });
}

}  // namespace

ElementReader master_reader(const Manifest& manifest) {
  const bool rounded = manifest.meta_text("dtype") == "bf16";
  const bool wide = manifest.meta_text("dtype") == "fp64";
  return [&manifest, rounded, wide](const ParamSpec& spec, int64_t first, int64_t count, const Tensor& out) {
    std::vector<double> f64(wide ? static_cast<size_t>(count) : 0);
    std::vector<float> f32(wide ? 0 : static_cast<size_t>(count));
    const Tensor raw =
        wide ? make_tensor(f64.data(), DType::f64, {count}) : make_tensor(f32.data(), DType::f32, {count});
    const StateTensor state{"param/" + spec.name, spec.shape, {first, first + count}, raw};
    load_state(manifest, {&state, 1});
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      double value = wide ? f64[i] : static_cast<double>(f32[i]);
      if (rounded && !spec.wide)
        value = std::bit_cast<float>((std::bit_cast<uint32_t>(f32[i]) + 0x8000u) & 0xffff0000u);
      if (out.dtype == DType::f64)
        out.as<double>()[i] = value;
      else
        out.as<float>()[i] = static_cast<float>(value);
    }
  };
}

void load_weights(const Manifest& manifest, ParameterStore& store) {
  device::HostWindows windows(store.device());
  for (const Parameter& p : store.list()) {
    if (p.spec.whose == Whose::base) continue;
    for (const RowSpan& span : p.spans)
      if (span.rows > 0) load_rows(manifest, p, span, p.value.dtype, windows);
    store.filled(p);
  }
}

}  // namespace temper
