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

template <class T>
double widen(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return static_cast<double>(static_cast<float>(x));
}
template <class To>
To narrow(double x) {
  if constexpr (std::is_same_v<To, double>)
    return x;
  else
    return static_cast<To>(static_cast<float>(x));
}

/// memcpy per element: file data need not be aligned.
template <class To, class From>
int64_t convert(char* out, const char* in, int64_t count) {
  int64_t bad = -1;
  for (int64_t i = 0; i < count; ++i) {
    From x;
    std::memcpy(&x, in + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    To y;
    if constexpr (std::is_same_v<To, From>)
      y = x;
    else
      y = narrow<To>(widen(x));
    std::memcpy(out + i * static_cast<int64_t>(sizeof(To)), &y, sizeof(To));
    if (!std::isfinite(widen(y)) && bad < 0) bad = i;
  }
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

double element_value(const void* data, DType type, int64_t index) {
  double value = 0;
  convert_elements(&value, DType::f64, static_cast<const char*>(data) + index * dtype_size(type), type, 1);
  return value;
}

}  // namespace temper
