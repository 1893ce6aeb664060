#include "src/run/verbs/folder_commands.h"

#include <filesystem>

#include "src/core/file.h"
#include "src/core/process/results.h"
#include "src/core/text/printable.h"
#include "src/data/prompt_builder.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/io/checkpoint/master_reader.h"
#include "src/io/elements.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_export.h"
#include "src/io/hf/hf_import.h"
#include "src/io/hf/merged_weights.h"
#include "src/io/hf/model_folder.h"
#include "src/io/hf/peft_folder.h"
#include "src/models/model.h"
#include "src/models/parameter_specs.h"
#include "src/run/host/model_host.h"
#include "src/run/host/rank_threads.h"
#include "src/run/record/origins/input_digests.h"
#include "src/run/record/run_checkpoint.h"
#include "src/run/record/run_log.h"
#include "src/run/session/start/find_checkpoint.h"
#include "src/run/verbs/json_lines.h"

namespace temper {
namespace {

/// model.allow_unused of the run.
std::vector<std::string> allowed_of(const Manifest& manifest) {
  if (!manifest.has_meta(kAllowUnused)) return {};
  const std::string where = fmt::format("{}: meta.{}", manifest.path(), kAllowUnused);
  std::vector<std::string> names;
  for (const Json& name : parse_json(manifest.meta_text(kAllowUnused), where, {.depth = 2})) {
    if (!name.is_string())
      fail(Exit::data, {.what = "the checkpoint is damaged",
                        .where = where,
                        .why = "it is no list of names",
                        .fix = "use another checkpoint"});
    names.push_back(name.get<std::string>());
  }
  return names;
}

Json tokenized(const JsonLine& line, const Tokenizer& tokenizer, const ChatTemplate* chat, bool add_special) {
  if (chat) {
    Json arguments = line.value;
    if (!arguments.contains("messages"))
      fail(Exit::data, {.what = "a line has no \"messages\"",
                        .where = line.where,
                        .why = "--chat renders messages",
                        .fix = "write {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}"});
    const Json messages = arguments["messages"];
    arguments.erase("messages");
    const std::string text =
        chat->render(template_variables(tokenizer, messages, /*generation_prompt=*/true, arguments));
    return {{"text", text}, {"tokens", tokenizer.encode(text, add_special)}};
  }
  if (line.value.contains("tokens"))
    return {{"text", tokenizer.decode(token_list(line, tokenizer.vocab_size()), /*skip_special=*/false)}};
  const auto text = line.value.find("text");
  if (text == line.value.end() || !text->is_string())
    fail(Exit::data,
         {.what = "a line has neither \"text\" nor \"tokens\"",
          .where = line.where,
          .why = text == line.value.end() ? "both keys are missing" : "\"text\" is " + json_kind(*text),
          .fix = "write {\"text\": \"...\"} or {\"tokens\": [ids]}; for messages use --chat"});
  return {{"tokens", tokenizer.encode(text->get<std::string>(), add_special)}};
}

/// The base of adapters is that which they were trained on.
void require_base(const Manifest& manifest, const ModelFolder& folder, const ModelConfig& config,
                  const std::vector<ParamSpec>& specs) {
  if (!manifest.has_meta("model_digest")) return;
  const std::string before = manifest.meta_text("model_digest"),
                    now = digest_of_weights(folder, config, specs);
  if (before == now) return;
  fail(Exit::data,
       {.what = "these adapters were trained on other weights",
        .where = folder.path(),
        .why = fmt::format("the weights have the digest {}, those of the run had {}", now, before),
        .fix = "name the folder that the run began with: --source DIR"});
}

/// A run of adapters: those, or with them the whole model.
void export_adapted(const CommandLine& line, const Manifest& manifest, ModelFolder folder,
                    const ModelConfig& config, const ExportOptions& options) {
  if (!config.adapters.on())
    fail(Exit::usage, {.what = "nothing to merge",
                       .where = "--merge, " + manifest.path(),
                       .why = "the run trained no adapters",
                       .fix = "leave --merge out"});
  const std::vector<ParamSpec> specs = parameter_specs(config);
  const ElementReader adapters = master_reader(manifest);
  if (!line.has("--merge")) {
    const std::string& dtype = options.dtype == "auto" ? manifest.meta_text("dtype") : options.dtype;
    return export_adapters(
        specs, adapters, line.text("--out"),
        {config.adapters, std::filesystem::absolute(folder.path()).lexically_normal().string(),
         parse_dtype_option(dtype)});
  }
  ModelConfig base = config;
  base.adapters = {};
  folder.match_names(base);
  folder.allow_unused(options.allow_unused);
  const std::vector<ParamSpec> whole = parameter_specs(base);
  require_base(manifest, folder, base, whole);
  export_model(folder.path(), whole, merged_reader(folder, specs, config.adapters.scale(), adapters),
               line.text("--out"), options);
}

}  // namespace

int run_tokenize(const CommandLine& line) {
  const std::string folder = line.text("--tokenizer");
  const Tokenizer tokenizer = Tokenizer::load(folder);
  std::optional<ChatTemplate> chat;
  if (line.has("--chat")) {
    chat = ChatTemplate::load(folder);
    if (!chat)
      fail(Exit::usage, {.what = "the folder has no chat template",
                         .where = folder,
                         .why = "neither chat_template.jinja nor tokenizer_config.json has one",
                         .fix = "leave --chat out, or put a chat_template.jinja there"});
  }
  for (const JsonLine& one : read_json_lines(line.text("--input")))
    write_results(
        dump_json_line(tokenized(one, tokenizer, chat ? &*chat : nullptr, line.has("--add-special"))) + "\n");
  return 0;
}

int run_init(const CommandLine& line) {
  const std::string source = line.text("--config");
  const auto specs = [&](const ModelConfig& config) {
    check_supported(config, source);  // weights that nothing could train are not made
    return parameter_specs(config);
  };
  const std::string tokenizer = line.text("--tokenizer");
  if (is_directory(tokenizer)) Tokenizer::load(tokenizer);  // one that nothing could read is not copied
  init_model_folder(source, line.text("--out"), specs,
                    {.seed = static_cast<uint64_t>(line.integer("--seed", 0)),
                     .dtype = line.text("--dtype", "auto"),
                     .tokenizer_folder = tokenizer,
                     .threads = process_threads().number});
  return 0;
}

int run_export(const CommandLine& line) {
  const std::string checkpoint = resolve_checkpoint(line.text("--checkpoint"));
  require_sound(checkpoint);
  const Manifest manifest = Manifest::read(checkpoint);
  const std::string source = line.text("--source", manifest.meta_text("model_path"));
  ModelFolder folder = ModelFolder::open(source, ModelFolder::Weights::optional);
  start_log("", "warn", 0, /*on_stderr=*/true);
  if (manifest.has_meta(kInputs))
    tell_what_changed(
        InputDigests::from_text(manifest.meta_text(kInputs), fmt::format("{}: meta.{}", checkpoint, kInputs)),
        source);
  ModelConfig config = parse_model_config(folder.config(), nullptr, folder.config_path());
  config.adapters = adapters_of(manifest);
  const ExportOptions options{line.text("--dtype", "auto"), line.integer("--shard-size", 5'000'000'000),
                              allowed_of(manifest),
                              line.has("--source") ? TokenizerPlace{} : tokenizer_place(manifest)};
  if (config.adapters.on() || line.has("--merge")) {
    export_adapted(line, manifest, std::move(folder), config, options);
    return 0;
  }
  export_model(source, parameter_specs(config), master_reader(manifest), line.text("--out"), options);
  return 0;
}

int run_verify(const CommandLine& line) {
  const std::string checkpoint = resolve_checkpoint(line.text("--checkpoint"));
  const std::vector<Damage> damage = verify_checkpoint(checkpoint);
  if (line.has("--json")) {
    Json list = Json::array();
    for (const Damage& d : damage)
      list.push_back({{"file", d.file}, {"tensor", d.tensor}, {"reason", d.reason}});
    write_results(dump_json_line({{"ok", damage.empty()}, {"checkpoint", checkpoint}, {"damage", list}}) +
                  "\n");
  } else {
    for (const Damage& d : damage)
      write_results(printable(fmt::format("damaged: {} {}: {}\n", d.file, d.tensor, d.reason)));
    if (damage.empty()) write_results(printable(checkpoint) + ": every checksum matches\n");
  }
  return static_cast<int>(damage.empty() ? Exit::ok : Exit::data);
}

}  // namespace temper
