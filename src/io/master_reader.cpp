#include "src/io/master_reader.h"

#include <bit>

#include "src/io/checkpoint.h"

namespace temper {

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
      if (rounded) value = std::bit_cast<float>((std::bit_cast<uint32_t>(f32[i]) + 0x8000u) & 0xffff0000u);
      if (out.dtype == DType::f64)
        out.as<double>()[i] = value;
      else
        out.as<float>()[i] = static_cast<float>(value);
    }
  };
}

}  // namespace temper
