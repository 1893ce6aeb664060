#include "src/nn/init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/core/parallel.h"
#include "src/core/process/progress.h"
#include "src/core/rng.h"

namespace temper {
namespace {

/// Box-Muller: two independent standard normals of two random words.
std::array<double, 2> normal_pair(uint32_t radius_word, uint32_t angle_word) {
  const double radius = std::sqrt(2.0 * static_cast<double>(exponential_of(radius_word)));
  // Angle = (quadrant + fraction) * pi/2; Taylor series up to x^21/21!, below 3e-16 on [0, pi/2].
  const uint32_t quadrant = angle_word >> 30;
  const double x = static_cast<double>(angle_word & 0x3fffffffu) * 0x1p-30 * 1.5707963267948966;
  double sine = 1.0, cosine = 1.0;
  for (int k = 20; k >= 2; k -= 2) {
    sine = 1.0 - x * x * sine / (k * (k + 1.0));
    cosine = 1.0 - x * x * cosine / (k * (k - 1.0));
  }
  sine *= x;
  switch (quadrant) {
    case 0:
      return {radius * cosine, radius * sine};
    case 1:
      return {-radius * sine, radius * cosine};
    case 2:
      return {-radius * cosine, -radius * sine};
    default:
      return {radius * sine, -radius * cosine};
  }
}

/// Elements 4*block .. 4*block+3 of a parameter.
std::array<double, 4> normal_block(uint64_t seed, int64_t parameter, int64_t block) {
  const PhiloxBlock words =
      stream_words(seed, RngStream::weight_init, static_cast<uint32_t>(block),
                   static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(parameter));
  const auto [a, b] = normal_pair(words[0], words[1]);
  const auto [c, d] = normal_pair(words[2], words[3]);
  return {a, b, c, d};
}

/// Words of 32 random bits as numbers in [-1, 1), over the square root of the columns; or as the logarithms
/// of numbers from 0.01 to 16.
void uniform_values(const ParamSpec& spec, int64_t index, uint64_t seed, FlatRange elements, float* out) {
  const bool of_log = spec.init == Init::log_uniform;
  const double bound = of_log ? 0 : 1.0 / std::sqrt(static_cast<double>(spec.shape[1]));
  for (int64_t element = elements.begin; element < elements.end; ++element) {
    const PhiloxBlock words =
        stream_words(seed, RngStream::weight_init, static_cast<uint32_t>(element / 4),
                     static_cast<uint32_t>(element / 4 >> 32), static_cast<uint32_t>(index));
    const double unit = uniform_of(words[static_cast<size_t>(element % 4)]);
    out[element - elements.begin] =
        of_log ? plog(static_cast<float>(0.01 + 15.99 * unit)) : static_cast<float>((2 * unit - 1) * bound);
  }
}

void zero_padding_row(const ParamSpec& spec, int64_t row, FlatRange elements, float* out) {
  const int64_t width = spec.shape[1];
  const int64_t begin = std::max(row * width, elements.begin),
                end = std::min((row + 1) * width, elements.end);
  for (int64_t i = begin; i < end; ++i) out[i - elements.begin] = 0.0f;
}

}  // namespace

void random_values(const ParamSpec& spec, int64_t index, const ModelConfig& config, uint64_t seed,
                   FlatRange elements, float* out) {
  note_progress();
  const int64_t count = elements.size();
  CHECK(elements.begin >= 0 && count >= 0 && elements.end <= spec.size(), "elements {} to {} of {}",
        elements.begin, elements.end, spec.name);
  if (spec.init == Init::uniform || spec.init == Init::log_uniform)
    return uniform_values(spec, index, seed, elements, out);
  if (spec.init != Init::normal) {
    std::fill(out, out + count, spec.init == Init::ones ? 1.0f : 0.0f);
    return;
  }
  for (int64_t i = 0; i < count;) {
    const int64_t element = elements.begin + i;
    const std::array<double, 4> values = normal_block(seed, index, element / 4);
    for (int64_t k = element % 4; k < 4 && i < count; ++k, ++i)
      out[i] = static_cast<float>(values[static_cast<size_t>(k)] * config.initializer_range);
  }
  if (spec.name == "embed" && config.pad_token_id >= 0)
    zero_padding_row(spec, config.pad_token_id, elements, out);
}

namespace {

/// The values of those that `index` gives a number of a stream, which is not negative.
template <class Index>
void fill_values(ParameterStore& store, const ModelConfig& config, uint64_t seed, const Threads& threads,
                 Index&& index_of) {
  constexpr int64_t kWindow = int64_t{1} << 20, kGrain = 4096;
  std::vector<float> values(kWindow);
  for (Parameter& p : store.list())
    dispatch_storage(p.value.dtype, [&](auto s) {
      using S = decltype(s);
      const int64_t index = index_of(p.spec);
      if (index < 0) return;
      std::vector<S> rounded(static_cast<size_t>(std::min(kWindow, p.value.size())));
      const int64_t width = p.spec.size() / p.spec.shape[0];
      for (const RowSpan& span : p.spans)
        for (int64_t at = 0; at < span.rows * width; at += kWindow) {
          const int64_t n = std::min(kWindow, span.rows * width - at), first = span.whole * width + at;
          parallel_ranges(threads, n, kGrain, [&](int64_t begin, int64_t end) {
            random_values(p.spec, index, config, seed, {first + begin, first + end}, values.data() + begin);
            for (int64_t i = begin; i < end; ++i)
              rounded[static_cast<size_t>(i)] = static_cast<S>(values[static_cast<size_t>(i)]);
          });
          device::upload(store.device(), p.value.as<S>() + span.own * width + at, rounded.data(),
                         n * int64_t{sizeof(S)});
        }
      store.filled(p);
    });
}

}  // namespace

void random_init(ParameterStore& store, const ModelConfig& config, uint64_t seed, const Threads& threads) {
  fill_values(store, config, seed, threads, [next = int64_t{0}](const ParamSpec& spec) mutable {
    return spec.whose == Whose::adapter ? -1 : next++;
  });
}

void adapter_init(ParameterStore& store, const ModelConfig& config, uint64_t seed, const Threads& threads) {
  constexpr int64_t kFirst = int64_t{1} << 31;  // no other parameter has these numbers
  fill_values(store, config, seed, threads, [next = kFirst](const ParamSpec& spec) mutable {
    return spec.whose == Whose::adapter ? next++ : -1;
  });
}

}  // namespace temper
