#include "src/io/hf/peft_folder.h"

#include <algorithm>
#include <array>

#include "src/core/check.h"
#include "src/core/text/nearest.h"
#include "src/io/elements.h"
#include "src/io/hf/folder_writer.h"
#include "src/io/hf/hf_import.h"
#include "src/io/json_members.h"

namespace temper {
namespace {

constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kAllLinear = "all-linear";
constexpr int64_t kMostRank = 4096;
constexpr int64_t kWindow = int64_t{1} << 20;  // elements

class ConfigReader {
 public:
  ConfigReader(Json config, std::string path) : config_(std::move(config)), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    fail(Exit::data, {.what = "these adapters cannot be used",
                      .where = fmt::format("{}, {}", path_, quote_name(key)),
                      .why = why,
                      .fix = "use a PEFT folder of plain LoRA adapters of linear layers, all of one rank"});
  }
  /// Null where it is absent.
  Json at(const std::string& key) const {
    const auto found = config_.find(key);
    return found == config_.end() ? Json() : *found;
  }
  std::string text(const std::string& key) const {
    const std::string all = at(key).dump(-1, ' ', true);
    return all.substr(0, 100);
  }
  const Json& all() const { return config_; }
  bool flag(const char* key) const {
    const Json value = at(key);
    if (!value.is_null() && !value.is_boolean()) refuse(key, text(key) + " is neither true nor false");
    return value == true;
  }
  double number(const char* key) const {
    const Json value = at(key);
    if (!value.is_number()) refuse(key, text(key) + " is no number");
    return value.get<double>();
  }

 private:
  Json config_;
  std::string path_;
};

/// Keys that may say anything: they change nothing of plain adapters, or are looked at by themselves.
constexpr std::array<std::string_view, 18> kAnything{"auto_mapping",
                                                     "base_model_name_or_path",
                                                     "inference_mode",
                                                     "init_lora_weights",
                                                     "lora_alpha",
                                                     "lora_dropout",
                                                     "megatron_config",
                                                     "megatron_core",
                                                     "peft_type",
                                                     "peft_version",
                                                     "r",
                                                     "revision",
                                                     "runtime_config",
                                                     "target_modules",
                                                     "task_type",
                                                     "use_rslora",
                                                     "ensure_weight_tying",
                                                     "qalora_group_size"};

/// What a key that is not off stands for, where people know it by another name.
std::string feature_of(const std::string& key) {
  if (key == "use_dora") return "DoRA";
  if (key == "modules_to_save") return "a module that is saved whole";
  if (key == "bias") return "a trained bias";
  if (key == "target_parameters") return "an adapter of a parameter, as experts have them,";
  if (key.ends_with("_pattern")) return "a choice by module";
  return "this kind of adapter";
}

void refuse_other_kinds(const ConfigReader& c) {
  if (c.at("peft_type") != "LORA") c.refuse("peft_type", c.text("peft_type") + " is not \"LORA\"");
  for (const auto& [key, value] : c.all().items()) {
    if (std::find(kAnything.begin(), kAnything.end(), key) != kAnything.end()) continue;
    const bool off = value.is_null() || value == false || value == "none" ||
                     ((value.is_array() || value.is_object()) && value.empty());
    if (!off) c.refuse(key, fmt::format("{}: {} is not read", c.text(key), feature_of(key)));
  }
  const Json init = c.at("init_lora_weights");
  const bool plain = init.is_null() || init.is_boolean() || init == "gaussian" || init == "orthogonal";
  if (!plain)
    c.refuse("init_lora_weights", c.text("init_lora_weights") + " changes the weights beside the adapters");
}

/// A module by its last name: "q_proj" of "model.layers.0.self_attn.q_proj" is that of every layer.
std::set<std::string> read_targets(const ConfigReader& c, const std::set<std::string>& modules) {
  const Json list = c.at("target_modules");
  if (list == kAllLinear) return modules;
  if (!list.is_array() || list.empty())
    c.refuse("target_modules", c.text("target_modules") + " is no list of modules");
  std::set<std::string> targets;
  const std::vector<std::string> known(modules.begin(), modules.end());
  for (const Json& one : list) {
    if (!one.is_string()) c.refuse("target_modules", "an entry is " + json_kind(one));
    const std::string name = one.get<std::string>();
    if (!modules.contains(name))
      c.refuse("target_modules",
               fmt::format("{} is no module that adapters can be of here; those are {}{}", quote_name(name),
                           fmt::join(known, ", "), did_you_mean(name, known)));
    targets.insert(name);
  }
  return targets;
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& folder, const std::set<std::string>& modules,
                                  std::vector<FileDigest>* files) {
  const std::string path = join_path(folder, kAdapterConfig);
  std::optional<Json> json;
  if (is_directory(folder)) json = read_config_file(folder, kAdapterConfig, files);
  if (!json || !json->is_object())
    fail(Exit::data, {.what = "no adapters here",
                      .where = folder,
                      .why = json ? "its adapter_config.json is no object" : "it has no adapter_config.json",
                      .fix = "give a folder as the PEFT library writes it"});
  return parse_adapter_config(*json, path, modules);
}

AdapterConfig parse_adapter_config(const Json& json, const std::string& where,
                                   const std::set<std::string>& modules) {
  const ConfigReader c(json, where);
  refuse_other_kinds(c);
  const double rank = c.number("r"), alpha = c.number("lora_alpha");
  if (!(rank >= 1 && rank <= kMostRank) || rank != static_cast<double>(static_cast<int64_t>(rank)))
    c.refuse("r", fmt::format("{} is no whole number from 1 to {}", c.text("r"), kMostRank));
  if (!(alpha > 0)) c.refuse("lora_alpha", c.text("lora_alpha") + " is not above 0");
  return {.rank = static_cast<int64_t>(rank),
          .alpha = alpha,
          .rslora = c.flag("use_rslora"),
          .targets = read_targets(c, modules)};
}

namespace {

void refuse_tensor(const std::string& path, const std::string& name, const std::string& why) {
  fail(Exit::data, {.what = "adapter tensor " + quote_name(name) + " cannot be used",
                    .where = path,
                    .why = why,
                    .fix = "use adapters of this very model, whole"});
}

/// The rows of a part that this rank has, in windows, each as the type of the store.
void import_part(const SafetensorsFile& file, const TensorInfo& info, const std::string& name,
                 const Tensor& to, int64_t first, device::HostWindows& windows) {
  const DType from = *float_dtype(info.dtype);
  const int64_t item = dtype_size(from), own = dtype_size(to.dtype);
  std::vector<char> raw;
  windows.write(to.raw(), to.bytes(), [&](char* window, int64_t at, int64_t bytes) {
    const int64_t count = bytes / own;
    raw.resize(static_cast<size_t>(count * item));
    file.read(info.begin + (first + at / own) * item, count * item, raw.data());
    if (const int64_t bad = convert_elements(window, to.dtype, raw.data(), from, count); bad >= 0)
      refuse_tensor(file.path(), name,
                    fmt::format("element {} is {}, which is not finite as {}", first + at / own + bad,
                                element_value(raw.data(), from, bad), dtype_name(to.dtype)));
  });
}

const TensorInfo& checked_tensor(const SafetensorsFile& file, const ParamSpec& spec, const HfPart& part) {
  const std::string name = kPrefix + part.name;
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) refuse_tensor(file.path(), name, "it is missing");
  const TensorInfo& info = found->second;
  if (info.shape != part_shape(spec, part))
    refuse_tensor(file.path(), name,
                  fmt::format("it is {}, the model and rank {} ask for {}", shape_text(info.shape),
                              spec.name.ends_with("lora_a") ? part.rows : spec.shape[1],
                              shape_text(part_shape(spec, part))));
  if (!float_dtype(info.dtype)) refuse_tensor(file.path(), name, info.dtype + " is no type of adapters");
  return info;
}

}  // namespace

void import_adapters(const std::string& folder, ParameterStore& store) {
  const std::string path = find_in_folder(folder, kAdapterModel);
  if (path.empty())
    fail(Exit::data, {.what = "the adapters have no weights",
                      .where = folder,
                      .why = fmt::format("it has no {}", kAdapterModel),
                      .fix = "fetch the folder again (pickle files are not read)"});
  const SafetensorsFile file(path, kAdapterModel);
  std::set<std::string> used;
  for (const Parameter& p : store.list())
    for (const HfPart& part : p.spec.parts)
      if (p.spec.whose == Whose::adapter)
        checked_tensor(file, p.spec, part), used.insert(kPrefix + part.name);
  for (const auto& [name, info] : file.tensors())
    if (!used.contains(name)) refuse_tensor(path, name, "it belongs to no adapter of this model's targets");
  device::HostWindows windows(store.device());
  for (const Parameter& p : store.list()) {
    if (p.spec.whose != Whose::adapter) continue;
    const int64_t width = p.spec.shape[1];
    int64_t before = 0;
    for (size_t i = 0; i < p.spec.parts.size(); before += p.spec.parts[i++].rows) {
      const RowSpan& span = p.spans[i];
      if (span.rows == 0) continue;
      const HfPart& part = p.spec.parts[i];
      import_part(file, checked_tensor(file, p.spec, part), kPrefix + part.name,
                  rows(p.value, span.own, span.own + span.rows), (span.whole - before) * width, windows);
    }
    store.filled(p);
  }
}

namespace {

TensorToWrite tensor_of(const ParamSpec& spec, const HfPart& part, int64_t first, const ElementReader& read,
                        DType dtype) {
  TensorToWrite t{kPrefix + part.name, safetensors_name(dtype), part_shape(spec, part), {}};
  t.write = [spec, first, count = t.num_elements(), &read, dtype](OutputFile& file) {
    const DType type = dtype == DType::f64 ? DType::f64 : DType::f32;
    const int64_t step = std::min(kWindow, count);
    std::vector<char> values(static_cast<size_t>(step * dtype_size(type))),
        out(static_cast<size_t>(step * dtype_size(dtype)));
    for (int64_t at = 0; at < count; at += step) {
      const int64_t n = std::min(step, count - at);
      read(spec, first + at, n, make_tensor(values.data(), type, {n}));
      if (const int64_t bad = convert_elements(out.data(), dtype, values.data(), type, n); bad >= 0)
        fail(Exit::data,
             {.what = fmt::format("an adapter cannot be written as {}", dtype_name(dtype)),
              .where = spec.name,
              .why = fmt::format("{} is not finite in this type", element_value(values.data(), type, bad)),
              .fix = "export with --dtype fp32, or use an older checkpoint"});
      file.write(out.data(), n * dtype_size(dtype));
    }
  };
  return t;
}

}  // namespace

Json adapter_config_json(const AdapterConfig& c, const std::string& base) {
  const bool whole = c.alpha == static_cast<double>(static_cast<int64_t>(c.alpha));
  return {{"base_model_name_or_path", base},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"lora_alpha", whole ? Json(static_cast<int64_t>(c.alpha)) : Json(c.alpha)},
          {"lora_dropout", 0.0},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"r", c.rank},
          {"target_modules", c.targets},
          {"task_type", "CAUSAL_LM"},
          {"use_dora", false},
          {"use_rslora", c.rslora}};
}

void export_adapters(const std::vector<ParamSpec>& specs, const ElementReader& read, const std::string& out,
                     const PeftExport& options) {
  std::vector<TensorToWrite> tensors;
  for (const ParamSpec& spec : specs) {
    if (spec.whose != Whose::adapter) continue;
    int64_t first = 0;
    for (const HfPart& part : spec.parts) {
      tensors.push_back(tensor_of(spec, part, first, read, options.dtype));
      first += part.rows * spec.shape[1];
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  FolderPlan plan{.shards = {}, .config = adapter_config_json(options.config, options.base)};
  plan.shards.push_back(std::move(tensors));
  plan.weights_name = kAdapterModel;
  plan.config_name = kAdapterConfig;
  write_model_folder(out, plan);
}

}  // namespace temper
