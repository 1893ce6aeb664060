#include "src/io/hf/hf_export.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/parallel.h"
#include "src/io/elements.h"
#include "src/io/hf/folder_writer.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_import.h"
#include "src/io/json_members.h"
#include "src/nn/init.h"

namespace temper {
namespace {

constexpr int64_t kWindow = 1 << 21;  // elements; 16 MiB as fp64
constexpr int64_t kRandomGrain = 4096;
constexpr int64_t kShardBytes = 5'000'000'000;

/// One Hugging Face tensor as a run of elements of a parameter.
struct Source {
  const ParamSpec* spec = nullptr;
  HfPart tensor = {};
  int64_t first = 0;
};

std::map<std::string, Source> sources_of(const std::vector<ParamSpec>& specs) {
  std::map<std::string, Source> sources;
  for (const ParamSpec& spec : specs) {
    int64_t first = 0;
    for (const HfPart& tensor : tensors_of(spec)) {
      sources[tensor.name] = {&spec, tensor, first};
      first += tensor.rows * (spec.size() / spec.shape[0]);
    }
  }
  return sources;
}

void write_elements(OutputFile& file, const Source& source, DType dtype, int64_t count,
                    const ElementReader& read) {
  const DType type = dtype == DType::f64 ? DType::f64 : DType::f32;
  const int64_t step = std::min(kWindow, std::max<int64_t>(count, 1));
  std::vector<char> values(static_cast<size_t>(step * dtype_size(type)));
  std::vector<char> out(static_cast<size_t>(step * dtype_size(dtype)));
  for (int64_t done = 0; done < count; done += step) {
    const int64_t n = std::min(step, count - done);
    read(*source.spec, source.first + done, n, make_tensor(values.data(), type, {n}));
    const int64_t bad = convert_elements(out.data(), dtype, values.data(), type, n);
    if (bad >= 0)
      fail(Exit::data,
           {.what = "weight " + source.tensor.name + " cannot be written as " + dtype_name(dtype),
            .where = fmt::format("element {} of the tensor", done + bad),
            .why = fmt::format("{} is not finite in this type", element_value(values.data(), type, bad)),
            .fix = "export with --dtype fp32; if the value itself is not finite, use an older checkpoint"});
    file.write(out.data(), n * dtype_size(dtype));
  }
}

TensorToWrite parameter_tensor(const Source& source, DType dtype, const ElementReader& read) {
  TensorToWrite t{source.tensor.name, safetensors_name(dtype), part_shape(*source.spec, source.tensor), {}};
  t.write = [source, dtype, count = t.num_elements(), &read](OutputFile& file) {
    write_elements(file, source, dtype, count, read);
  };
  return t;
}

/// What files hold joined, and how far it is written.
class JoinedTensors {
 public:
  explicit JoinedTensors(const std::vector<JoinedTensor>& all) {
    for (const JoinedTensor& joined : all)
      for (const RowBlock& block : joined.blocks) of_.emplace(block.tensor, &joined);
  }
  /// The one with this tensor; null: it is written by itself.
  const JoinedTensor* of(const std::string& tensor) const {
    const auto at = of_.find(tensor);
    return at == of_.end() ? nullptr : at->second;
  }
  /// The first time.
  bool begins(const JoinedTensor& joined) { return begun_.insert(&joined).second; }

 private:
  std::map<std::string, const JoinedTensor*> of_;
  std::set<const JoinedTensor*> begun_;
};

TensorToWrite joined_tensor(const JoinedTensor& joined, const std::map<std::string, Source>& sources,
                            DType dtype, const ElementReader& read) {
  const auto write = [&joined, &sources, dtype, &read](OutputFile& file) {
    for (const RowBlock& block : joined.blocks) {
      Source source = sources.at(block.tensor);
      const int64_t width = source.spec->size() / source.spec->shape[0];
      source.first += block.first * width;
      write_elements(file, source, dtype, block.rows * width, read);
    }
  };
  return {joined.name, safetensors_name(dtype), joined.shape, write};
}

TensorToWrite kept_tensor(const ModelFolder& folder, const std::string& name, const TensorInfo& info) {
  const auto copy = [&folder, name, bytes = info.end - info.begin](OutputFile& file) {
    std::vector<char> window(static_cast<size_t>(std::min<int64_t>(bytes, kWindow)));
    for (int64_t at = 0; at < bytes; at += kWindow) {
      const int64_t n = std::min(kWindow, bytes - at);
      folder.read_bytes(name, at, n, window.data());
      file.write(window.data(), n);
    }
  };
  return {name, info.dtype, info.shape, copy};
}

/// Tensors of every source file, in its order.
std::vector<std::vector<TensorToWrite>> shards_like_source(const ModelFolder& folder,
                                                           const ModelConfig& config,
                                                           const std::map<std::string, Source>& sources,
                                                           std::optional<DType> dtype,
                                                           const ElementReader& read) {
  std::map<std::string, std::vector<TensorToWrite>> files;
  JoinedTensors joined(folder.joined());
  for (const std::string& name : folder.tensor_order()) {
    const JoinedTensor* const whole = joined.of(name);
    if (is_tied_head(name, config) || (whole && !joined.begins(*whole))) continue;
    const TensorInfo& info = folder.tensors().at(name);
    const auto source = sources.find(name);
    std::vector<TensorToWrite>& file = files[info.file];
    if (source == sources.end())
      file.push_back(kept_tensor(folder, name, info));
    else if (const DType type = dtype.value_or(*float_dtype(info.dtype)); whole)
      file.push_back(joined_tensor(*whole, sources, type, read));
    else
      file.push_back(parameter_tensor(source->second, type, read));
    file.back().name = folder.stored_name(whole ? whole->name : name);
  }
  std::vector<std::vector<TensorToWrite>> shards;
  for (auto& [file, tensors] : files) shards.push_back(std::move(tensors));
  return shards;
}

bool all_fit(const std::vector<std::vector<TensorToWrite>>& shards, int64_t shard_bytes) {
  return std::all_of(shards.begin(), shards.end(), [&](const std::vector<TensorToWrite>& shard) {
    int64_t bytes = 0;
    for (const TensorToWrite& t : shard) bytes += t.bytes();
    return bytes <= shard_bytes || shard.size() == 1;
  });
}

std::vector<TensorToWrite> joined(std::vector<std::vector<TensorToWrite>> shards) {
  std::vector<TensorToWrite> all;
  for (auto& shard : shards) std::move(shard.begin(), shard.end(), std::back_inserter(all));
  return all;
}

/// `all`: what files of the model hold joined.
std::vector<TensorToWrite> tensors_of_specs(const std::vector<ParamSpec>& specs,
                                            const std::vector<JoinedTensor>& all,
                                            const std::map<std::string, Source>& sources, DType dtype,
                                            const ElementReader& read) {
  std::vector<TensorToWrite> tensors;
  JoinedTensors joined(all);
  for (const ParamSpec& spec : specs)
    for (const HfPart& part : tensors_of(spec)) {
      const JoinedTensor* const whole = joined.of(part.name);
      if (!whole)
        tensors.push_back(parameter_tensor(sources.at(part.name), dtype, read));
      else if (joined.begins(*whole))
        tensors.push_back(joined_tensor(*whole, sources, dtype, read));
    }
  return tensors;
}

int64_t num_parameters(const std::vector<ParamSpec>& specs) {
  int64_t n = 0;
  for (const ParamSpec& spec : specs) n += spec.size();
  return n;
}

/// The type that config.json names, else fp32 (what transformers assumes).
DType config_dtype(const Json& config) {
  for (const char* key : {"dtype", "torch_dtype"})
    if (const auto it = config.find(key); it != config.end() && it->is_string())
      if (const auto type = parse_torch_name(it->get<std::string>())) return *type;
  const auto text = config.find("text_config");
  return text != config.end() && text->is_object() ? config_dtype(*text) : DType::f32;
}

std::optional<DType> requested_dtype(const std::string& text) {
  return text == "auto" ? std::nullopt : std::optional(parse_dtype_option(text));
}

void check_shard_bytes(int64_t bytes) {
  if (bytes <= 0)
    fail(Exit::usage, {.what = "bad shard size",
                       .where = "--shard-size",
                       .why = fmt::format("{} bytes", bytes),
                       .fix = "give a positive number of bytes"});
}

}  // namespace

void export_model(const std::string& source_folder, const std::vector<ParamSpec>& specs,
                  const ElementReader& read, const std::string& out, const ExportOptions& options) {
  const std::optional<DType> dtype = requested_dtype(options.dtype);
  check_shard_bytes(options.shard_bytes);
  ModelFolder folder = ModelFolder::open(source_folder, ModelFolder::Weights::optional);
  const Json* generation = folder.generation_config() ? &*folder.generation_config() : nullptr;
  const ModelConfig config = parse_model_config(folder.config(), generation, folder.config_path());
  const std::map<std::string, Source> sources = sources_of(specs);
  const std::vector<JoinedTensor> grouped = grouped_inputs(config);
  FolderPlan plan;
  DType main_type = dtype.value_or(config_dtype(folder.config()));
  if (folder.tensors().empty()) {
    plan.shards =
        split_shards(tensors_of_specs(specs, grouped, sources, main_type, read), options.shard_bytes);
  } else {
    folder.match_names(config);
    folder.allow_unused(options.allow_unused);
    const std::vector<std::string> left_over = check_weights(folder, config, specs);
    if (!left_over.empty())
      log::warn("tensors of {} that the model does not use are written as they are ({}; the first is {})",
                source_folder, left_over.size(), quote_name(left_over.front()));
    if (!dtype) main_type = *float_dtype(folder.tensors().at(specs.front().parts.front().name).dtype);
    plan.shards = shards_like_source(folder, config, sources, dtype, read);
    if (!all_fit(plan.shards, options.shard_bytes))
      plan.shards = split_shards(joined(std::move(plan.shards)), options.shard_bytes);
  }
  plan.total_parameters = num_parameters(specs);
  plan.config = export_config(folder.config(), config, main_type, dtype.has_value());
  plan.companions = companion_files(source_folder, options.tokenizer);
  write_model_folder(out, plan);
}

ElementReader store_reader(const ParameterStore& store) {
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter& p : store.list()) by_name[p.spec.name] = &p;
  auto windows = std::make_shared<device::HostWindows>(store.device());
  return [by_name = std::move(by_name), windows](const ParamSpec& spec, int64_t first, int64_t count,
                                                 const Tensor& destination) {
    const Tensor& value = by_name.at(spec.name)->value;
    const int64_t item = dtype_size(value.dtype);
    auto* to = static_cast<char*>(destination.raw());
    windows->read(static_cast<const char*>(value.raw()) + first * item, count * item,
                  [&](const char* from, int64_t bytes) {
                    convert_elements(to, destination.dtype, from, value.dtype, bytes / item);
                    to += bytes / item * dtype_size(destination.dtype);
                  });
  };
}

void init_model_folder(const std::string& config_json_path, const std::string& out,
                       const SpecsFunction& specs_of, const InitOptions& options) {
  ThreadTeam team(options.threads);
  const std::optional<DType> wanted = requested_dtype(options.dtype);
  const Json source = read_json_file(config_json_path, kConfigLimits);
  const ModelConfig config = parse_model_config(source, nullptr, config_json_path);
  if (!options.tokenizer_folder.empty() && !is_directory(options.tokenizer_folder))
    fail(Exit::usage, {.what = "no such tokenizer folder",
                       .where = options.tokenizer_folder,
                       .why = "the path does not exist or is a file",
                       .fix = "give the folder of tokenizer.json"});
  const DType type = wanted.value_or(config_dtype(source));
  const std::vector<ParamSpec> specs = specs_of(config);
  std::map<std::string, int64_t> index;
  for (const ParamSpec& spec : specs) index.emplace(spec.name, static_cast<int64_t>(index.size()));
  std::vector<float> values;
  const ElementReader read = [&](const ParamSpec& spec, int64_t first, int64_t count,
                                 const Tensor& destination) {
    values.resize(static_cast<size_t>(count));
    const int64_t parameter = index.at(spec.name);
    parallel_ranges(team, count, kRandomGrain, [&](int64_t begin, int64_t end) {
      random_values(spec, parameter, config, options.seed, {first + begin, first + end},
                    values.data() + begin);
    });
    convert_elements(destination.raw(), destination.dtype, values.data(), DType::f32, count);
  };
  FolderPlan plan;
  const std::map<std::string, Source> sources = sources_of(specs);
  const std::vector<JoinedTensor> grouped = grouped_inputs(config);
  plan.shards = split_shards(tensors_of_specs(specs, grouped, sources, type, read), kShardBytes);
  plan.total_parameters = num_parameters(specs);
  plan.config = export_config(source, config, type, wanted.has_value());
  if (!options.tokenizer_folder.empty()) plan.companions = companion_files(options.tokenizer_folder);
  write_model_folder(out, plan);
}

}  // namespace temper
