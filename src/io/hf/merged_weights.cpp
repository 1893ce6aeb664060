#include "src/io/hf/merged_weights.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/io/elements.h"

namespace temper {
namespace {

/// The adapters of one matrix.
struct Merged {
  std::string of;  // its name
  int64_t rank = 0;
  std::vector<double> a, b;
};

class MergedReader {
 public:
  MergedReader(const ModelFolder& folder, const std::vector<ParamSpec>& specs, double scale,
               const ElementReader& adapters)
      : folder_(folder), scale_(scale), adapters_(adapters) {
    for (const ParamSpec& spec : specs) specs_[spec.name] = &spec;
  }

  void read(const ParamSpec& spec, int64_t first, int64_t count, const Tensor& to) {
    const auto b = specs_.find(spec.name + ".lora_b");
    values_.resize(static_cast<size_t>(count));
    const int64_t width = spec.size() / spec.shape[0];
    int64_t begin = 0;  // of the part, in elements
    for (const HfPart& part : tensors_of(spec)) {
      const int64_t end = begin + part.rows * width;
      const int64_t from = std::max(begin, first), until = std::min(end, first + count);
      if (from < until) {
        double* const values = values_.data() + (from - first);
        read_base(part.name, from - begin, until - from, values);
        if (b != specs_.end()) add_adapters(spec, *b->second, part, from - begin, until - from, values);
      }
      begin = end;
    }
    convert_elements(to.raw(), to.dtype, values_.data(), DType::f64, count);
  }

 private:
  void read_base(const std::string& tensor, int64_t first, int64_t count, double* to) {
    const DType type = *float_dtype(folder_.tensors().at(tensor).dtype);
    raw_.resize(static_cast<size_t>(count * dtype_size(type)));
    folder_.read(tensor, first, count, raw_.data());
    convert_elements(to, DType::f64, raw_.data(), type, count);
  }

  std::vector<double> all_of(const ParamSpec& spec) const {
    std::vector<double> values(static_cast<size_t>(spec.size()));
    adapters_(spec, 0, spec.size(), make_tensor(values.data(), DType::f64, {spec.size()}));
    return values;
  }

  /// Elements of a part, whose adapters may be none.
  void add_adapters(const ParamSpec& spec, const ParamSpec& b, const HfPart& part, int64_t first,
                    int64_t count, double* to) {
    const std::string name = part.name.substr(0, part.name.rfind('.')) + ".lora_B.weight";
    int64_t block = 0, row = 0;
    while (block < std::ssize(b.parts) && b.parts[static_cast<size_t>(block)].name != name)
      row += b.parts[static_cast<size_t>(block++)].rows;
    if (block == std::ssize(b.parts)) return;
    if (now_.of != spec.name)
      now_ = {spec.name, b.shape[1], all_of(*specs_.at(spec.name + ".lora_a")), all_of(b)};
    const int64_t width = spec.shape[1], rank = now_.rank;
    for (int64_t at = first; at < first + count;) {
      const int64_t n = at / width, column = at % width,
                    columns = std::min(width - column, first + count - at);
      double* const sums = to + (at - first);
      for (int64_t k = 0; k < rank; ++k) {
        const double factor = scale_ * now_.b[static_cast<size_t>((row + n) * rank + k)];
        const double* const a = now_.a.data() + (block * rank + k) * width + column;
        for (int64_t j = 0; j < columns; ++j) sums[j] += factor * a[j];
      }
      at += columns;
    }
  }

  const ModelFolder& folder_;
  double scale_;
  const ElementReader& adapters_;
  std::map<std::string, const ParamSpec*> specs_;
  Merged now_;
  std::vector<double> values_;
  std::vector<char> raw_;
};

}  // namespace

ElementReader merged_reader(const ModelFolder& folder, const std::vector<ParamSpec>& specs, double scale,
                            const ElementReader& adapters) {
  return [reader = std::make_shared<MergedReader>(folder, specs, scale, adapters)](
             const ParamSpec& spec, int64_t first, int64_t count, const Tensor& to) {
    reader->read(spec, first, count, to);
  };
}

}  // namespace temper
