#include <array>

#include "src/config/config.h"
#include "src/core/rng.h"
#include "src/run/verbs/bits/verify_bits_command.h"
#include "src/run/verbs/check_command.h"
#include "src/run/verbs/command_line.h"
#include "src/run/verbs/eval_command.h"
#include "src/run/verbs/folder_commands.h"
#include "src/run/verbs/help/help.h"
#include "src/run/verbs/model_commands.h"
#include "src/run/verbs/report_command.h"
#include "src/run/verbs/serve/serve_command.h"
#include "src/run/verbs/train_command.h"

namespace temper {
namespace {

using Kind = OptionKind;
constexpr double kMaxRanks = 65536;
constexpr double kMaxThreads = 4096;
constexpr double kMaxSeed = 9223372036854774784.0;  // largest double below 2^63
constexpr std::string_view kDevices = "auto|cpu|cuda";
constexpr std::string_view kDtypes = "auto|fp32|bf16|fp64";
constexpr std::string_view kFileDtypes = "auto|fp32|bf16|fp16|fp64";

constexpr OptionSpec kDevice{"--device", Kind::choice, kDevices, "auto", "backend"};
constexpr OptionSpec kDtype{"--dtype", Kind::choice, kDtypes, "auto: bf16 on cuda, fp32 on cpu",
                            "type of weights and activations (fp64 on cpu only)"};
constexpr OptionSpec kThreads{
    "--threads",        Kind::integer, "N", "OMP_NUM_THREADS, or its share of the host's cores",
    "threads per rank", false,         1,   kMaxThreads};
constexpr OptionSpec kModel{"--model", Kind::text, "DIR", "", "Hugging Face folder", true};
constexpr OptionSpec kModelOr{"--model", Kind::text, "DIR", "",    "Hugging Face folder",
                              true,      0,          0,     false, "--checkpoint"};
constexpr OptionSpec kWeights{"--checkpoint", Kind::text, "DIR", "",
                              "weights of a step folder, or of the newest checkpoint of a run folder; "
                              "config, tokenizer and template are those of --model, else of the run"};
constexpr OptionSpec kAllow{"--allow-unused", Kind::files, "NAME", "",
                            "tensors that may be left over in the folder, or patterns with *"};
constexpr OptionSpec kLora{"--lora", Kind::text, "DIR", "none",
                           "PEFT folder whose adapters add to the linear layers of --model"};
constexpr OptionSpec kCheckpoint{
    "--checkpoint", Kind::text, "DIR", "", "a step folder, or a run folder: its newest checkpoint", true};
constexpr OptionSpec kOut{"--out", Kind::text, "DIR", "", "folder to write; it must not exist or be empty",
                          true};

constexpr OptionSpec kLocal{
    "--local",
    Kind::integer,
    "N",
    "1",
    "N ranks of this host, started by the mpirun of Open MPI; Ctrl-C saves a run, as SIGTERM, SIGHUP and "
    "SIGUSR1 do",
    false,
    1,
    kMaxRanks};

constexpr std::array kTrain{
    OptionSpec{"--replay", Kind::files, "FILE", "",
               "no generation: each file (as written under rollouts/) is the rollouts of one step"},
    OptionSpec{"--rollouts-only", Kind::flag, "", "",
               "make and score the rollouts of the next step, and end: they can be trained on with --replay"},
    OptionSpec{"--dump-gradients", Kind::text, "DIR", "",
               "per update one update-000001.safetensors: fp32, Hugging Face names, before clipping"},
    kLocal,
};
constexpr std::array kCheck{
    OptionSpec{"--ranks", Kind::integer, "N", "1",
               "ranks that the run will have; as the next two: a plan for another machine", false, 1,
               kMaxRanks},
    OptionSpec{"--gpus-per-node", Kind::integer, "N", "all on one node",
               "ranks of one node, for the map of ranks", false, 1, kMaxRanks},
    OptionSpec{
        "--device-memory", Kind::memory, "GiB", "what this machine has; unlimited for another one",
        "memory of one rank (host memory on the cpu backend); a plan that needs more is an error; a bare "
        "number is GiB, 80GB and 141GB are what such cards have",
        false, 1e-6, 1e6},
    OptionSpec{"--memory", Kind::flag, "", "",
               "with what each phase holds, and what other keys would change"},
    OptionSpec{"--all", Kind::flag, "", "",
               "with every number: batch, lengths, ranks, memory, traffic, data"},
    OptionSpec{"--explain-batch", Kind::flag, "", "",
               "with the batch under the names that other trainers use"},
    OptionSpec{"--json", Kind::flag, "", "", "the plan as one JSON object"},
};
constexpr std::array kGenerate{
    kModelOr,
    kWeights,
    kAllow,
    kLora,
    OptionSpec{"--prompt", Kind::text, "TEXT", "", "one prompt; its text is streamed to a terminal"},
    OptionSpec{"--prompts", Kind::text, "FILE", "",
               "JSONL of {\"prompt\"}, {\"messages\"} or {\"tokens\"}; -: stdin"},
    OptionSpec{"--prompt-key", Kind::text, "KEY", "prompt", "key of the prompt in a line"},
    OptionSpec{
        "--out", Kind::text, "FILE", "stdout",
        "file for the results; one that exists goes on after the prompts that it has, with the settings "
        "in FILE.settings.json"},
    OptionSpec{
        "--chat", Kind::flag, "", "",
        "render prompts with the chat template; other keys of a line (\"tools\", \"enable_thinking\") are "
        "variables of it; without prompts: a conversation on this terminal"},
    OptionSpec{"--samples", Kind::integer, "N", "1", "responses per prompt", false, 1, SampleKey::kMaxSample},
    OptionSpec{"--seed", Kind::integer, "N", "0", "seed of sampling", false, 0, kMaxSeed},
    kDevice,
    kDtype,
    kThreads,
    kLocal,
};
constexpr std::array<std::string_view, 2> kOnePrompt{"--prompt", "--prompts"};
constexpr std::array kServe{
    kModelOr,
    kWeights,
    kAllow,
    kLora,
    OptionSpec{"--address", Kind::text, "A", "127.0.0.1",
               "IP address to listen at; another one than this host's own needs a key"},
    OptionSpec{"--port", Kind::integer, "N", "8000", "0: the system chooses one", false, 0, 65535},
    OptionSpec{"--key-file", Kind::text, "FILE", "none", "its first line is the key that clients must send"},
    OptionSpec{"--seed", Kind::integer, "N", "0", "seed of sampling, where a request has none", false, 0,
               kMaxSeed},
    OptionSpec{"--grace", Kind::number, "SECONDS", "60",
               "that open answers have when a stop comes (SIGTERM, SIGINT): what is not whole then ends with "
               "503; the exit code is 0 either way",
               false, 0, 86400},
    kDevice,
    kDtype,
    kThreads,
};
constexpr std::array kScore{
    kModelOr,
    kWeights,
    kAllow,
    kLora,
    OptionSpec{"--input", Kind::text, "FILE", "", "JSONL of {\"tokens\": [n ids]}; -: stdin", true},
    OptionSpec{"--temperature", Kind::number, "T", "1.0", "divides the logits; 0 counts as 1", false,
               kLeastTemperature, 1000, true},
    kDevice,
    kDtype,
    kThreads,
    kLocal,
};
constexpr std::array kTokenize{
    OptionSpec{"--tokenizer", Kind::text, "DIR", "", "folder with tokenizer.json", true},
    OptionSpec{"--input", Kind::text, "FILE", "",
               "JSONL of {\"text\"}, {\"tokens\"} or, with --chat, {\"messages\"}; -: stdin", true},
    OptionSpec{"--chat", Kind::flag, "", "",
               "render messages with the chat template, whose variables the other keys of a line are"},
    OptionSpec{"--add-special", Kind::flag, "", "", "add what tokenizer.json's post_processor adds"},
};
constexpr std::array kInit{
    OptionSpec{"--config", Kind::text, "FILE", "", "config.json of the model", true},
    kOut,
    OptionSpec{"--seed", Kind::integer, "N", "0", "seed of the weights", false, 0, kMaxSeed},
    OptionSpec{"--dtype", Kind::choice, kFileDtypes, "auto: the dtype of config.json", "type of the tensors"},
    OptionSpec{"--tokenizer", Kind::text, "DIR", "none", "folder whose tokenizer files are copied"},
};
constexpr std::array kExport{
    kCheckpoint,
    kOut,
    OptionSpec{"--source", Kind::text, "DIR",
               "model.path of the run, with the tokenizer that its config names",
               "folder whose config, tokenizer and other files go with the weights"},
    OptionSpec{"--dtype", Kind::choice, kFileDtypes, "auto: the source's dtype per tensor",
               "type of the tensors"},
    OptionSpec{"--shard-size", Kind::bytes, "BYTES", "5GB",
               "tensor bytes of one file, as a number or a size"},
    OptionSpec{"--merge", Kind::flag, "", "",
               "of a run that trained adapters: the whole model, with what they add; else a PEFT folder"},
};
constexpr std::array kVerify{kCheckpoint,
                             OptionSpec{"--json", Kind::flag, "", "", "the result as one JSON object"}};
constexpr std::array kVerifyBits{
    kModel,
    kAllow,
    OptionSpec{
        "--layouts", Kind::files, "PAIR", "each axis, along as many of the ranks as it can have",
        "ROLLOUT:TRAINER, such as tp2:pp2 or 1:tp2cp2; 1 splits nothing, the rest of the ranks is data "
        "parallel"},
    OptionSpec{"--json", Kind::flag, "", "", "the result as one JSON object"},
    OptionSpec{"--seed", Kind::integer, "N", "0", "seed of prompts and sampling", false, 0, kMaxSeed},
    kDevice,
    kDtype,
    kThreads,
    kLocal,
};
constexpr std::array kEval{
    OptionSpec{"--checkpoint", Kind::text, "DIR", "weights of model.path",
               "weights of a step folder, or of the newest checkpoint of a run folder"},
    OptionSpec{"--out", Kind::text, "FILE", "none",
               "file for responses and rewards, a line per sample; one that exists goes on after the prompts "
               "that it has, with the settings in FILE.settings.json"},
    kThreads, kLocal};
constexpr std::array kReport{
    OptionSpec{"--out", Kind::text, "FILE", "report.html in the folder of the first run", "the page"},
    OptionSpec{"--csv", Kind::text, "FILE", "none",
               "the metrics as a table, too: a row per step, a column per key, floats exact"},
};
constexpr std::array kHelp{
    OptionSpec{"--all", Kind::flag, "", "", "with `keys`: those of later versions too"},
};

const std::array kVerbs{
    VerbSpec{"train",
             "CONFIG",
             Overrides::all,
             kTrain,
             run_train,
             "train, under mpirun or srun, with --local or alone",
             {}},
    VerbSpec{
        "check",
        "CONFIG",
        Overrides::all,
        kCheck,
        run_check,
        "whether a config would start and fit, on one screen: batch, ranks, memory, a look at model folder "
        "and data, a session where programs play them; each broken rule with legal values on stderr",
        {}},
    VerbSpec{"generate", "", Overrides::rollout, kGenerate, run_generate, "sample responses, in input order",
             kOnePrompt, "--chat"},
    VerbSpec{"serve",
             "",
             Overrides::rollout,
             kServe,
             run_serve,
             "a model behind OpenAI's and Anthropic's protocols, over HTTP; the ranks of a host share a port",
             {}},
    VerbSpec{"score", "", Overrides::none, kScore, run_score, "log-probs and entropies of given tokens", {}},
    VerbSpec{"tokenize", "", Overrides::none, kTokenize, run_tokenize, "text to tokens and back", {}},
    VerbSpec{"init", "", Overrides::none, kInit, run_init, "a Hugging Face folder with random weights", {}},
    VerbSpec{"export", "", Overrides::none, kExport, run_export, "a checkpoint as a Hugging Face folder", {}},
    VerbSpec{"verify",
             "",
             Overrides::none,
             kVerify,
             run_verify,
             "read a checkpoint and compare every checksum",
             {}},
    VerbSpec{
        "verify-bits",
        "",
        Overrides::none,
        kVerifyBits,
        run_verify_bits,
        "whether the log-probs that rollout reports and those that training computes are the same bits, for "
        "a model on this machine",
        {}},
    VerbSpec{"eval", "CONFIG", Overrides::all, kEval, run_eval, "the validation of a config alone", {}},
    VerbSpec{"report",
             "RUN...",
             Overrides::none,
             kReport,
             run_report,
             "a page (HTML) about one or several run folders: curves, phase times, samples, config, starts",
             {}},
    VerbSpec{"help",
             "[TOPIC...]",
             Overrides::none,
             kHelp,
             run_help,
             "this text, or that of a topic, a verb, a config key, a section, `keys`, `exit-codes`, "
             "`environment`, "
             "`completion bash` (zsh, fish) or `man`",
             {}},
};

}  // namespace

std::span<const VerbSpec> verbs() { return kVerbs; }

}  // namespace temper
