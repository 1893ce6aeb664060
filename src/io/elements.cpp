#include "src/io/elements.h"

#include <cmath>

namespace temper {
namespace {

struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float x) : bits(float_to_fp16(x)) {}
  explicit operator float() const { return fp16_to_float(bits); }
};
static_assert(sizeof(Half) == 2);

template <class F>
void dispatch_file(DType type, F&& f) {
  switch (type) {
    case DType::f16:
      return f(Half{});
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(bf16{});
    case DType::f32:
      return f(float{});
    default:
      CHECK(false, "{} is no float type", dtype_name(type));
  }
}

/// As fp32; fp64 as it is.
template <class T>
auto widen(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return static_cast<float>(x);
}
template <class To, class Wide>
To narrow(Wide x) {
  if constexpr (std::is_same_v<To, double>)
    return static_cast<double>(x);
  else
    return static_cast<To>(static_cast<float>(x));
}

template <class T>
T element_at(const char* data, int64_t index) {
  T x;  // memcpy: file data need not be aligned
  std::memcpy(&x, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return x;
}

/// False when a result is not finite. No branch in the loop: it has a vector of elements at once.
template <class To, class From>
bool convert_all(char* out, const char* in, int64_t count) {
  int defects = 0;
#pragma omp simd reduction(| : defects)
  for (int64_t i = 0; i < count; ++i) {
    const From x = element_at<From>(in, i);
    To y;
    if constexpr (std::is_same_v<To, From>)
      y = x;
    else
      y = narrow<To>(widen(x));
    std::memcpy(out + i * static_cast<int64_t>(sizeof(To)), &y, sizeof(To));
    defects |= std::isfinite(widen(y)) ? 0 : 1;
  }
  return defects == 0;
}

template <class T>
bool finite_in(const char* in, int64_t count) {
  int defects = 0;
#pragma omp simd reduction(| : defects)
  for (int64_t i = 0; i < count; ++i) defects |= std::isfinite(widen(element_at<T>(in, i))) ? 0 : 1;
  return defects == 0;
}

template <class To, class From>
int64_t convert(char* out, const char* in, int64_t count) {
  if (convert_all<To, From>(out, in, count)) return -1;
  int64_t bad = 0;
  while (std::isfinite(widen(element_at<To>(out, bad)))) ++bad;
  return bad;
}

}  // namespace

std::optional<DType> float_dtype(const std::string& name) {
  if (name == "BF16") return DType::bf16;
  if (name == "F16") return DType::f16;
  if (name == "F32") return DType::f32;
  if (name == "F64") return DType::f64;
  return std::nullopt;
}

const char* safetensors_name(DType type) {
  switch (type) {
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::f32:
      return "F32";
    case DType::f64:
      return "F64";
    default:
      CHECK(false, "{} is no float type", dtype_name(type));
  }
  return "";
}

const char* torch_name(DType type) {
  switch (type) {
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    default:
      CHECK(false, "{} is no float type", dtype_name(type));
  }
  return "";
}

std::optional<DType> parse_torch_name(const std::string& name) {
  for (DType type : {DType::f32, DType::bf16, DType::f16, DType::f64})
    if (name == torch_name(type) || name == std::string("torch.") + torch_name(type)) return type;
  return std::nullopt;
}

DType parse_dtype_option(const std::string& text) {
  for (DType type : {DType::f32, DType::bf16, DType::f16, DType::f64})
    if (text == dtype_name(type)) return type;
  fail(Exit::usage, {.what = "unknown element type \"" + text + "\"",
                     .where = "--dtype",
                     .why = "files hold auto, fp32, bf16, fp16 or fp64",
                     .fix = "use one of these"});
}

int64_t convert_elements(void* destination, DType to, const void* source, DType from, int64_t count) {
  int64_t bad = -1;
  dispatch_file(to, [&](auto t) {
    dispatch_file(from, [&](auto f) {
      bad = convert<decltype(t), decltype(f)>(static_cast<char*>(destination),
                                              static_cast<const char*>(source), count);
    });
  });
  return bad;
}

bool all_finite(DType type, const char* elements, int64_t bytes) {
  const int64_t count = bytes / dtype_size(type);
  switch (type) {
    case DType::f32:
      return finite_in<float>(elements, count);
    case DType::f64:
      return finite_in<double>(elements, count);
    case DType::bf16:
      return finite_in<bf16>(elements, count);
    default:
      return true;
  }
}

double element_value(const void* data, DType type, int64_t index) {
  double value = 0;
  convert_elements(&value, DType::f64, static_cast<const char*>(data) + index * dtype_size(type), type, 1);
  return value;
}

}  // namespace temper
