// The verbs, each as a user calls it, and that they agree with each other: `score` gives the log-probs that
// `generate` reported, `export` the weights that the run exported, `eval` the same numbers again. Results are
// on stdout alone.

#include <regex>

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

const char* kSft = R"(
run.name = "sft"
run.steps = 16
algorithm.name = "sft"
rollout.prompts_per_step = 4
rollout.max_new_tokens = 8
train.samples_per_update = 4
optimizer.lr = 1e-2
optimizer.weight_decay = 0.0
reward.functions = ["exact"]
validation.data = "data.jsonl"
validation.samples_per_prompt = 2
checkpoint.export_hf_every = 16
)";

const char* kGrpo = R"(
run.name = "grpo"
run.steps = 3
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 4
rollout.samples_per_prompt = 3
rollout.max_new_tokens = 8
reward.functions = ["exact"]
)";

class Verbs : public RunFixture {
 protected:
  void SetUp() override {
    std::string data;
    for (const char* word : {"one", "two", "three", "four"})
      data +=
          fmt::format("{{\"prompt\":\"after {0}\",\"answer\":\"{0}\",\"response\":\" comes {0}\"}}\n", word);
    prepare(kGrpo, data);
    program_.write("sft.toml", run_config(kSft));
  }

  /// Runs a verb that must succeed and returns its stdout; on stderr nothing may be but how much is done.
  std::string result(const std::string& arguments) const {
    return result_of(program_.temper() + " " + arguments);
  }
  std::string result_of(const std::string& command) const {
    EXPECT_EQ(program_.shell(command + " > result.log"), 0) << command << "\n" << output();
    static const std::regex progress("([0-9]+/[0-9]+ prompts\n)*");
    EXPECT_TRUE(std::regex_match(output(), progress)) << command << "\n" << output();
    return program_.read("result.log");
  }
  static std::vector<Json> lines(const std::string& text) {
    std::vector<Json> list;
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
      end = std::min(text.find('\n', at), text.size());
      list.push_back(parse_json(text.substr(at, end - at), "a line of stdout"));
    }
    return list;
  }
};

/// Every option that changes a draw; none changes the log-prob of what was drawn. Id 2 is the end token.
const char* kAllOptions =
    "rollout.repetition_penalty=1.3 rollout.presence_penalty=0.4 rollout.frequency_penalty=0.25 "
    "'rollout.logit_bias={2=9,100=-100}' rollout.min_new_tokens=4 rollout.top_k=500 rollout.top_p=0.97 "
    "rollout.min_p=0.0001 ";

TEST_F(Verbs, ScoreGivesTheLogprobsOfGenerate) {
  program_.write(
      "prompts.jsonl",
      "{\"prompt\":\"Once upon a time\"}\n{\"tokens\":[7]}\n{\"prompt\":\"二十三 plus ü\",\"more\":1}\n");
  for (const auto& [dtype, options] : {std::pair{"fp32", ""}, {"bf16", ""}, {"bf16", kAllOptions}}) {
    const std::string generate = fmt::format(
        "generate --model model --prompts prompts.jsonl --samples 2 --threads 1 --dtype {} {}"
        "rollout.max_new_tokens=21 rollout.prefill_chunk_tokens=3 --seed=",
        dtype, options);
    const std::string text = result(generate + "5");
    const std::vector<Json> generated = lines(text);
    ASSERT_EQ(generated.size(), 6u);
    EXPECT_EQ(result_of(program_.mpirun(2, generate + "5")), text)
        << "the work is shared, the samples are the same";
    EXPECT_NE(result(generate + "6"), text);
    std::string input;
    for (const Json& g : generated) {
      Json tokens = g.at("prompt_tokens");
      for (const Json& t : g.at("tokens")) tokens.push_back(t);
      input += Json{{"tokens", tokens}}.dump() + "\n";
    }
    program_.write("input.jsonl", input);
    const std::string score =
        fmt::format("score --model model --input input.jsonl --threads 1 --dtype {}", dtype);
    const std::string scores = result(score);
    const std::vector<Json> scored = lines(scores);
    ASSERT_EQ(scored.size(), generated.size());
    for (size_t i = 0; i < scored.size(); ++i) {
      const Json& g = generated[i];
      EXPECT_EQ(g.at("prompt_index"), i / 2);
      EXPECT_EQ(g.at("sample_index"), i % 2);
      const size_t prompt = g.at("prompt_tokens").size(), n = g.at("tokens").size();
      ASSERT_EQ(scored[i].at("logprobs").size(), prompt + n - 1);
      ASSERT_EQ(scored[i].at("entropy").size(), prompt + n - 1);
      ASSERT_EQ(g.at("logprobs").size(), n);
      for (size_t t = 0; t < n; ++t)
        EXPECT_EQ(scored[i].at("logprobs")[prompt - 1 + t].dump(), g.at("logprobs")[t].dump())
            << i << " " << t;
    }
    EXPECT_EQ(result_of(program_.mpirun(2, score)), scores);
  }
}

TEST_F(Verbs, VerifyBitsFindsNoneThatDiffers) {
  const std::string verify = "verify-bits --model model --device cpu --threads 1 ";
  const Json alone = lines(result(verify + "--json --dtype bf16")).at(0);
  EXPECT_EQ(alone.at("ok"), true);
  ASSERT_EQ(alone.at("pairs").size(), 1u);
  EXPECT_EQ(alone.at("pairs")[0].at("layouts"), "1:1");
  EXPECT_GT(alone.at("pairs")[0].at("tokens"), 500);
  EXPECT_EQ(alone.at("pairs")[0].at("differing_bits"), 0);
  EXPECT_TRUE(alone.at("cost").is_null());
  const std::string pairs = "--layouts tp2:pp2,1:cp2 1:tp2zero3";
  const std::string text = result_of(program_.mpirun(2, verify + pairs));
  for (const char* pair : {"\ntp2:pp2: ", "\n1:cp2: ", "\n1:tp2zero3: ", "the same bits\n"})
    EXPECT_NE(text.find(pair), std::string::npos) << text;
  EXPECT_EQ(result(verify + "--local 2 " + pairs), text);
  EXPECT_EQ(program_.run(verify + "--layouts tp2:1"), 64);
  EXPECT_TRUE(says("--layouts tp2:1") && says("roles.rollout.tp") && says("legal here: 1")) << output();
  EXPECT_EQ(program_.run("verify-bits --model nothing --device cpu"), 64);
  EXPECT_TRUE(says("nothing")) << output();
}

/// "-" in the place of a file: under mpirun rank 0 has stdin.
TEST_F(Verbs, LinesComeFromStdin) {
  program_.write("prompts.jsonl", "{\"prompt\":\"one\"}\n \n{\"tokens\":[7,8]}\n{\"prompt\":\"three\"}");
  const std::string generate = "generate --model model --threads 1 rollout.max_new_tokens=5 --prompts ";
  const std::string wanted = result(generate + "prompts.jsonl");
  ASSERT_EQ(lines(wanted).size(), 3u);
  EXPECT_EQ(result_of("cat prompts.jsonl | " + program_.temper() + " " + generate + "-"), wanted);
  EXPECT_EQ(result_of(program_.mpirun(2, generate + "-") + " < prompts.jsonl"), wanted);
  program_.write("ids.jsonl", "{\"tokens\":[7,8,9]}\n");
  const std::string score = "score --model model --threads 1 --input ";
  EXPECT_EQ(result(score + "- < ids.jsonl"), result(score + "ids.jsonl"));
  const std::string tokenize = "tokenize --tokenizer model --input ";
  EXPECT_EQ(result(tokenize + "- < ids.jsonl"), result(tokenize + "ids.jsonl"));
  EXPECT_EQ(program_.run(generate + "- < /dev/null"), 65);
  EXPECT_TRUE(says("stdin") && says("no lines")) << output();
  program_.write("prompts.jsonl", "{\"prompt\":\"one\"}\nplain text\n");
  EXPECT_EQ(program_.run(generate + "- < prompts.jsonl"), 65);
  EXPECT_TRUE(says("stdin:2")) << output();
}

TEST_F(Verbs, GenerateGoesOnWithItsFile) {
  std::string prompts;
  for (int i = 0; i < 7; ++i) prompts += fmt::format("{{\"question\":\"number {}\"}}\n", i);
  program_.write("prompts.jsonl", prompts);
  const std::string generate =
      "generate --model model --prompts prompts.jsonl --prompt-key question --samples 2 --threads 1 "
      "rollout.max_new_tokens=9 ";
  const std::string all = result(generate);
  EXPECT_EQ(output(), "7/7 prompts\n");
  EXPECT_EQ(result(generate + "--out whole.jsonl"), "");
  EXPECT_EQ(program_.read("whole.jsonl"), all);
  size_t end = 0;  // of the fifth line: two prompts and a half
  for (int line = 0; line < 5; ++line) end = all.find('\n', end) + 1;
  program_.write("begun.jsonl", all.substr(0, end + 20));
  program_.write("begun.jsonl.settings.json", program_.read("whole.jsonl.settings.json"));
  EXPECT_EQ(result_of(program_.mpirun(2, generate + "--out begun.jsonl")), "");
  EXPECT_EQ(program_.read("begun.jsonl"), all);
  EXPECT_EQ(result(generate + "--out begun.jsonl"), "") << "nothing is left to do";
  EXPECT_EQ(program_.read("begun.jsonl"), all);
  program_.write("prompts.jsonl", "{\"question\":\"another\"}\n" + prompts);
  EXPECT_EQ(program_.run(generate + "--out begun.jsonl"), 64);
  EXPECT_TRUE(says("begun.jsonl, line 1")) << output();
  EXPECT_EQ(program_.read("begun.jsonl"), all) << "it is left alone";
  program_.write("notes.txt", "not a result");
  EXPECT_EQ(program_.run(generate + "--out notes.txt"), 64) << output();
  EXPECT_EQ(program_.read("notes.txt"), "not a result");
}

/// A file of results stays one of one model, seed and way to sample, wherever the command is given again.
TEST_F(Verbs, OutputFilesAreGoneOnWithByTheirOwnSettings) {
  program_.write("prompts.jsonl", "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n{\"prompt\":\"three\"}\n");
  const auto generate = [&](const std::string& more, const std::string& model = "model") {
    return program_.run("generate --prompts prompts.jsonl --threads 1 --out out.jsonl --model " + model +
                        " rollout.max_new_tokens=5 " + more);
  };
  ASSERT_EQ(generate(""), 0) << output();
  const std::string all = program_.read("out.jsonl"), begun = all.substr(0, all.find('\n') + 20);
  program_.write("out.jsonl", begun);
  const std::pair<const char*, const char*> others[] = {
      {"--seed 7", "seed 0 -> 7"},
      {"--dtype bf16", R"(dtype "fp32" -> "bf16")"},
      {"rollout.temperature=0.5", "rollout.temperature 1.0 -> 0.5"},
      {"rollout.max_new_tokens=6", "rollout.max_new_tokens 5 -> 6"},
      {"'rollout.stop=[\"e\"]'", R"(rollout.stop [] -> ["e"])"}};
  for (const auto& [more, words] : others) {
    EXPECT_EQ(generate(more), 64) << more << ": " << output();
    EXPECT_TRUE(says(words) && says("out.jsonl.settings.json")) << more << ": " << output();
  }
  result("init --config model.config.json --out reseeded --seed 2 --tokenizer model");
  EXPECT_EQ(generate("", "reseeded"), 64) << output();
  EXPECT_TRUE(says("--out out.jsonl: model")) << output();
  EXPECT_EQ(program_.read("out.jsonl"), begun) << "refused commands leave it alone";
  ASSERT_EQ(program_.shell("cp -r model copied"), 0);
  EXPECT_EQ(generate("rollout.max_running_sequences=1", "copied"), 0) << "the same content: " << output();
  EXPECT_FALSE(says("settings")) << output();
  EXPECT_EQ(program_.read("out.jsonl"), all);
  std::filesystem::remove(program_.path("out.jsonl.settings.json"));
  program_.write("out.jsonl", begun);
  EXPECT_EQ(generate(""), 0) << output();
  EXPECT_TRUE(says("no out.jsonl.settings.json that says what made them")) << output();
  std::filesystem::remove(program_.path("out.jsonl"));
  EXPECT_EQ(generate("--seed 7"), 0) << "a new file, whatever made the one before: " << output();
}

TEST_F(Verbs, EvalGoesOnWithItsFile) {
  program_.write("reward.sh",
                 R"(while read -r line; do  # the id is the last key; points for what is before it
  id=${line##*\"id\":} rest=${line%\"id\":*}
  echo "{\"id\":${id%\}},\"reward\":${#rest}}"
done
)");
  const std::string eval =
      "eval sft.toml --threads 1 model.path=model 'rollout.stop=[\"e\"]' "
      "'reward.functions=[{name=\"command\",argv=[\"sh\",\"reward.sh\"]}]' ";
  const std::string metrics = result(eval);
  EXPECT_EQ(result(eval + "--out whole.jsonl"), metrics);
  const std::string all = program_.read("whole.jsonl");
  const std::vector<Json> samples = lines(all);
  double sum = 0, high = -1e9;
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].at("set"), "data") << i;
    EXPECT_EQ(samples[i].at("group"), i / 2) << i;
    EXPECT_EQ(samples[i].at("sample"), i % 2) << i;
    sum += samples[i].at("raw_reward").get<double>();
    high = std::max(high, samples[i].at("raw_reward").get<double>());
  }
  const Json score = lines(metrics).at(0);
  EXPECT_DOUBLE_EQ(sum / static_cast<double>(samples.size()), score.at("val/data/score/mean").get<double>());
  EXPECT_EQ(high, score.at("val/data/score/max"));
  EXPECT_NE(high, score.at("val/data/score/min")) << "all alike: nothing is compared";
  size_t end = 0;  // of the third line: a prompt and a half
  for (int line = 0; line < 3; ++line) end = all.find('\n', end) + 1;
  program_.write("begun.jsonl", all.substr(0, end + 20));
  program_.write("begun.jsonl.settings.json", program_.read("whole.jsonl.settings.json"));
  EXPECT_EQ(result_of(program_.mpirun(2, eval + "--out begun.jsonl")), metrics);
  EXPECT_EQ(program_.read("begun.jsonl"), all);
  EXPECT_EQ(result(eval + "--out begun.jsonl"), metrics) << "nothing is left to do";
  EXPECT_EQ(program_.read("begun.jsonl"), all);
  EXPECT_EQ(program_.run(eval + "--out begun.jsonl validation.samples_per_prompt=1"), 64);
  EXPECT_TRUE(says("begun.jsonl, line 2")) << output();
  EXPECT_EQ(program_.run(eval + "--out begun.jsonl run.seed=5"), 64);
  EXPECT_TRUE(says("run.seed 0 -> 5")) << output();
  EXPECT_EQ(program_.run(eval + "--out begun.jsonl validation.rollout.temperature=0.25"), 64);
  EXPECT_TRUE(says("validation.rollout.temperature null -> 0.25")) << output();
  EXPECT_EQ(program_.read("begun.jsonl"), all);
}

TEST_F(Verbs, TokenPromptsNeedNoTokenizer) {
  program_.write("ids.jsonl", "{\"tokens\":[7,8]}\n{\"tokens\":[9]}\n");
  const std::string generate = "generate --prompts ids.jsonl --threads 1 rollout.max_new_tokens=5 --model ";
  const std::vector<Json> with = lines(result(generate + "model"));
  std::filesystem::copy(program_.path("model"), program_.path("bare"));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::remove(program_.path(std::string("bare/") + name));
  const std::vector<Json> without = lines(result(generate + "bare"));
  ASSERT_EQ(without.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(without[i].at("tokens"), with[i].at("tokens")) << i;
    EXPECT_EQ(without[i].at("text"), "") << i;
  }
  program_.write("ids.jsonl", "{\"prompt\":\"a text\"}\n");
  EXPECT_EQ(program_.run(generate + "bare"), 65) << output();
}

TEST_F(Verbs, TokenizeThereAndBack) {
  const std::vector<std::string> texts{"", "Hello, world!\n", "  12345 + 67\t= ?",
                                       "naïve café 二十三 🙂🙂", "<|im_start|>user\nhi<|im_end|>"};
  std::string input, ids;
  for (const std::string& text : texts) input += Json{{"text", text}}.dump() + "\n";
  program_.write("text.jsonl", input);
  const std::string tokens = result("tokenize --tokenizer model --input text.jsonl");
  program_.write("ids.jsonl", tokens);
  const std::vector<Json> back = lines(result("tokenize --tokenizer model --input ids.jsonl"));
  ASSERT_EQ(back.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(back[i].at("text"), texts[i]);

  program_.write("chat.jsonl",
                 R"({"messages":[{"role":"user","content":"How many?"}]})"
                 "\n"
                 R"({"messages":[{"role":"user","content":"Hm"}],"add_generation_prompt":false})"
                 "\n");
  const std::vector<Json> chat = lines(result("tokenize --chat --tokenizer model --input chat.jsonl"));
  ASSERT_EQ(chat.size(), 2u);
  EXPECT_NE(chat[0].at("text").get<std::string>().find("How many?"), std::string::npos);
  EXPECT_NE(chat[0].at("text").get<std::string>().find("<|im_start|>assistant"), std::string::npos)
      << chat[0];
  EXPECT_EQ(chat[1].at("text"), "<|im_start|>user\nHm<|im_end|>\n");
  program_.write("ids.jsonl", Json{{"tokens", chat[0].at("tokens")}}.dump() + "\n");
  EXPECT_EQ(lines(result("tokenize --tokenizer model --input ids.jsonl")).at(0).at("text"),
            chat[0].at("text"));
}

/// Each line brings its own variables of the template, as for `tokenize --chat`; a prompt alone is a message.
TEST_F(Verbs, GenerateRendersTheKeysOfALine) {
  const std::string messages = R"("messages":[{"role":"user","content":"How many?"}])";
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"count_all","maximum":18446744073709551616}}])";
  program_.write(
      "model/chat_template.jinja",
      "{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}<{{ m.content }}>{% endfor %}"
      "{% if enable_thinking is defined and not enable_thinking %}quick{% endif %}");
  program_.write("chat.jsonl", fmt::format("{{{0}}}\n{{{0},{1}}}\n{{{0},\"enable_thinking\":false}}\n"
                                           "{{{0},\"enable_thinking\":true}}\n",
                                           messages, tools));
  const std::vector<Json> rendered = lines(result("tokenize --chat --tokenizer model --input chat.jsonl"));
  const std::vector<Json> generated = lines(
      result("generate --chat --model model --prompts chat.jsonl --threads 1 rollout.max_new_tokens=1"));
  ASSERT_EQ(rendered.size(), 4u);
  ASSERT_EQ(generated.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(generated[i].at("prompt_tokens"), rendered[i].at("tokens")) << i;
  EXPECT_NE(rendered[1].at("text").get<std::string>().find("\"maximum\": 18446744073709551616"),
            std::string::npos);
  EXPECT_EQ(rendered[2].at("text"), "<How many?>quick");
  EXPECT_EQ(rendered[3].at("text"), "<How many?>");
  program_.write("prompt.jsonl", "{\"prompt\":\"How many?\",\"enable_thinking\":false}\n");
  EXPECT_EQ(lines(result("generate --chat --model model --prompts prompt.jsonl --threads 1 "
                         "rollout.max_new_tokens=1"))[0]
                .at("prompt_tokens"),
            rendered[2].at("tokens"));
}

/// Heads of 100 as open_llama_3b has them: log-probs of generation and training agree, and training runs.
TEST_F(Verbs, HeadsOfAMultipleOfFour) {
  Json config = parse_json(kTinyQwen3, "config");
  config["head_dim"] = 100;
  ASSERT_EQ(program_.init_model("wide", config.dump().c_str()), 0) << output();
  ASSERT_EQ(program_.run("train run.toml run.name=wide run.steps=2 model.path=wide"), 0) << output();
  for (const Json& step : program_.metrics("wide")) {
    EXPECT_EQ(step.at("actor/rollout_logprob_diff_max"), 0.0);
    EXPECT_GT(step.at("actor/grad_norm"), 0.0);
  }
  config["head_dim"] = 102;
  EXPECT_EQ(program_.init_model("odd", config.dump().c_str()), 65);
  EXPECT_TRUE(says("head_dim is 102") && says("multiples of 4")) << output();
  EXPECT_FALSE(exists("odd"));
}

TEST_F(Verbs, SequencesBeyondTheRangeOfDynamicRopeNameIt) {
  Json config = parse_json(kTinyQwen3, "config");
  config["rope_parameters"] = {{"rope_type", "dynamic"}, {"factor", 2.0}, {"rope_theta", 10000.0}};
  config["max_position_embeddings"] = 16;
  ASSERT_EQ(program_.init_model("dynamic", config.dump().c_str()), 0) << output();
  const auto write_tokens = [&](int count) {
    program_.write("long.jsonl",
                   Json{{"tokens", std::vector<int>(static_cast<size_t>(count), 7)}}.dump() + "\n");
  };
  const std::string named = "rope type \"dynamic\" reaches to max_position_embeddings = 16";
  write_tokens(17);
  EXPECT_EQ(program_.run("score --model dynamic --threads 1 --input long.jsonl"), 65);
  EXPECT_TRUE(says(named)) << output();
  EXPECT_EQ(program_.run("generate --model dynamic --threads 1 --prompts long.jsonl"), 65);
  EXPECT_TRUE(says(named)) << output();
  write_tokens(16);
  EXPECT_EQ(program_.run("score --model dynamic --threads 1 --input long.jsonl"), 0) << output();
}

TEST_F(Verbs, InitIsAFunctionOfItsSeedAndWritesOverNothing) {
  const std::string weights = program_.read("model/model.safetensors");
  EXPECT_EQ(program_.run("init --config model.config.json --out model --seed 9"), 64);
  EXPECT_TRUE(says("it exists and is not empty") && says("name a folder that does not exist yet"))
      << output();
  EXPECT_EQ(program_.read("model/model.safetensors"), weights);
  result("init --config model.config.json --out same --seed 1");
  result("init --config model.config.json --out other --seed 2");
  EXPECT_EQ(program_.read("same/model.safetensors"), weights);
  EXPECT_NE(program_.read("other/model.safetensors"), weights);
  EXPECT_FALSE(exists("same/tokenizer.json"));
  EXPECT_EQ(program_.read("model/tokenizer.json"),
            read_file("tests/golden/tokenizer/minimind/tokenizer.json", 1 << 20));
  result("init --config model.config.json --out half --dtype bf16");
  EXPECT_LT(program_.read("half/model.safetensors").size(), weights.size() * 6 / 10);
  EXPECT_EQ(program_.run("init --config model.config.json --out new --tokenizer same"), 65);
  EXPECT_TRUE(says("same/tokenizer.json") && says("no tokenizer")) << output();
  EXPECT_FALSE(exists("new"));
}

TEST_F(Verbs, TrainVerifyExportEvalScore) {
  ASSERT_EQ(program_.run_ranks(2, "train sft.toml"), 0) << output();
  const std::vector<Json> steps = program_.metrics("sft");
  ASSERT_EQ(steps.size(), 16u);
  EXPECT_LT(steps.back().at("train/loss").get<double>(), 0.2 * steps.front().at("train/loss").get<double>());

  EXPECT_NE(result("verify --checkpoint runs/sft").find("every checksum matches"), std::string::npos);
  const Json verified = lines(result("verify --checkpoint runs/sft/checkpoints/step-000016 --json")).at(0);
  EXPECT_EQ(verified.at("ok"), true);
  EXPECT_TRUE(verified.at("damage").empty());

  result("export --checkpoint runs/sft --out out");
  const std::string exported = "runs/sft/export/step-000016";
  for (const std::string& name : list_directory(program_.path(exported)))
    EXPECT_EQ(program_.read("out/" + name), program_.read(exported + "/" + name)) << name;
  EXPECT_EQ(list_directory(program_.path("out")), list_directory(program_.path(exported)));
  EXPECT_EQ(program_.run("export --checkpoint runs/sft --out out"), 64) << "it wrote over a folder";

  const std::string eval = "eval sft.toml --threads 1 rollout.temperature=0 model.path=";
  const Json before = lines(result(eval + "model")).at(0), after = lines(result(eval + "out")).at(0);
  for (const Json& metrics : {before, after})
    for (const char* key :
         {"val/data/score/mean", "val/data/score/max", "val/data/score/min", "val/data/pass@2",
          "val/data/response_length/mean", "val/data/response_length/clip_ratio"})
      EXPECT_TRUE(metrics.contains(key)) << key << " in " << metrics;
  EXPECT_EQ(before.at("val/data/response_length/clip_ratio"), 1.0) << "a random model does not end by itself";
  EXPECT_EQ(after.at("val/data/response_length/clip_ratio"), 0.0) << "trained to say a few words and end";
  EXPECT_EQ(lines(result_of(program_.mpirun(2, eval + "out"))).at(0), after);
}

/// The weights of a run without an export: generate, score and eval give what the exported folder gives.
TEST_F(Verbs, ACheckpointIsAModel) {
  program_.write("input.jsonl", "{\"tokens\":[7,8,9,10,11,12]}\n");
  for (const char* dtype : {"fp32", "bf16"}) {
    const std::string run = std::string("run-") + dtype;
    ASSERT_EQ(program_.run_ranks(2, fmt::format("train sft.toml run.steps=2 checkpoint.export_hf_every=0 "
                                                "checkpoint.every=1 run.name={} run.dtype={}",
                                                run, dtype)),
              0)
        << output();
    result(fmt::format("export --checkpoint runs/{0} --out {0}", run));
    const std::string options = fmt::format(" --threads 1 --dtype {} ", dtype);
    const std::string score = "score --input input.jsonl" + options;
    const std::string wanted = result(score + "--model " + run);
    EXPECT_NE(result(score + "--model model"), wanted);
    EXPECT_EQ(result(score + "--checkpoint runs/" + run), wanted);
    EXPECT_EQ(result(score + "--checkpoint " + checkpoint(run, 2) + " --model model"), wanted);
    EXPECT_NE(result(score + "--checkpoint " + checkpoint(run, 1)), wanted);
    if (dtype == std::string("bf16")) continue;
    const std::string generate = "generate --prompts data.jsonl rollout.max_new_tokens=9" + options;
    EXPECT_EQ(result_of(program_.mpirun(2, generate + "--checkpoint runs/" + run)),
              result(generate + "--model " + run));
    const std::string eval = fmt::format("eval sft.toml --threads 1 run.dtype={} ", dtype);
    const std::string metrics = result(eval + "model.path=" + run);
    EXPECT_EQ(result(eval + "--checkpoint runs/" + run), metrics);
    EXPECT_EQ(result_of(program_.mpirun(2, eval + "roles.trainer.tp=2 --checkpoint runs/" + run)), metrics);
  }
  EXPECT_EQ(program_.shell("mv model moved && ! " + program_.temper() +
                           " score --input input.jsonl --checkpoint runs/run-fp32"),
            0);
  EXPECT_TRUE(says("/model, which does not exist") && says("--model DIR")) << output();
  EXPECT_EQ(program_.run("score --input input.jsonl --checkpoint moved --model moved"), 65) << output();
}

TEST_F(Verbs, ARunFolderIsNamedWhereAModelIsWanted) {
  ASSERT_EQ(program_.run("train run.toml run.steps=1"), 0) << output();
  const std::string run = "runs/grpo", step = checkpoint("grpo", 1);
  for (const std::string& verb :
       {std::string("score --input data.jsonl --model "), std::string("generate --prompt x --model "),
        std::string("verify-bits --model "), std::string("train run.toml model.path="),
        std::string("check run.toml model.path="), std::string("eval sft.toml model.path=")})
    for (const std::string& path : {run, run + "/checkpoints", step}) {
      EXPECT_EQ(program_.run(verb + path), 65) << verb << path << "\n" << output();
      EXPECT_TRUE(says(path == step ? "it is a checkpoint" : "it is the folder of a run") &&
                  says("export --checkpoint " + path) && says("--checkpoint " + path))
          << verb << output();
    }
}

TEST_F(Verbs, KlOfTheFirstUpdateIsZero) {
  ASSERT_EQ(program_.run_ranks(2, "train run.toml"), 0) << output();
  const std::vector<Json> steps = program_.metrics("grpo");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].at("actor/kl_loss"), 0.0) << "policy and reference are the same weights";
  for (size_t i : {1, 2}) EXPECT_GT(steps[i].at("actor/kl_loss"), 0.0) << "step " << i + 1;
  for (const Json& step : steps) EXPECT_EQ(step.at("actor/rollout_logprob_diff_max"), 0.0);
  EXPECT_TRUE(exists(rollout_file("grpo", 3)));
}

TEST_F(Verbs, OptionsOfSamplingStayOutOfTheLogprobs) {
  for (int ranks : {1, 2})
    ASSERT_EQ(program_.run_ranks(ranks, fmt::format("train run.toml run.name=on{} {}", ranks, kAllOptions)),
              0)
        << output();
  EXPECT_TRUE(says("rollout.repetition_penalty, rollout.presence_penalty")) << output();
  for (const Json& step : program_.metrics("on2"))
    EXPECT_EQ(step.at("actor/rollout_logprob_diff_max"), 0.0) << "step " << step;
  const auto responses = [&](const std::string& run) {
    std::vector<Json> tokens;
    for (const Json& line : program_.json_lines(rollout_file(run, 1)))
      tokens.push_back(line.at("response_tokens"));
    return tokens;
  };
  const std::vector<Json> drawn = responses("on1");
  EXPECT_EQ(drawn.size(), 12u);
  EXPECT_EQ(responses("on2"), drawn) << "another number of ranks";
  for (const Json& tokens : drawn) EXPECT_GT(tokens.size(), 4u) << tokens;
}

TEST_F(Verbs, GenerateRefusesOptionsThatCannotBe) {
  const std::string generate = "generate --model model --prompt x --threads 1 ";
  EXPECT_EQ(program_.run(generate + "rollout.logit_bias.6400=1"), 64);
  EXPECT_TRUE(says("rollout.logit_bias") && says("6400; ids are 0 to 6399")) << output();
  EXPECT_EQ(program_.run(generate + "'rollout.stop_token_ids=[3,6400]'"), 64);
  EXPECT_TRUE(says("rollout.stop_token_ids")) << output();
  EXPECT_EQ(program_.run(generate + "rollout.min_new_tokens=9 rollout.max_new_tokens=8"), 64);
  EXPECT_TRUE(says("rollout.min_new_tokens=8")) << output();
  EXPECT_EQ(program_.run(generate + "rollout.min_new_tokens=8 rollout.max_new_tokens=8"), 0) << output();
}

/// The model folder was named from where the run began: an export finds it from elsewhere, or takes another
/// one.
TEST_F(Verbs, ExportsFindTheSourceOfARunFromAnywhere) {
  ASSERT_EQ(program_.run("train run.toml run.name=far run.steps=1"), 0) << output();
  ASSERT_EQ(program_.shell("mkdir elsewhere && cp -r model elsewhere/moved && cd elsewhere && " +
                           program_.temper() + " export --checkpoint ../runs/far --out out"),
            0)
      << output();
  ASSERT_EQ(program_.shell("mv model gone && cd elsewhere && ! " + program_.temper() +
                           " export --checkpoint ../runs/far --out none && " + program_.temper() +
                           " export --checkpoint ../runs/far --out other --source moved"),
            0)
      << output();
  EXPECT_FALSE(says("has another")) << output();
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"})
    EXPECT_TRUE(program_.read(std::string("elsewhere/out/") + file) ==
                program_.read(std::string("elsewhere/other/") + file))
        << file;
}

/// What is not the run's any more is said: files of other content, those that came, those that are gone.
TEST_F(Verbs, ExportsSayThatTheirSourceIsAnotherOne) {
  ASSERT_EQ(program_.run("train run.toml run.name=kept run.steps=1"), 0) << output();
  ASSERT_EQ(program_.shell("cp -r model other && echo >> other/tokenizer.json && echo '{}' > "
                           "other/generation_config.json && rm other/tokenizer_config.json"),
            0);
  ASSERT_EQ(program_.run("export --checkpoint runs/kept --out same"), 0) << output();
  EXPECT_EQ(output(), "");
  ASSERT_EQ(program_.run("export --checkpoint runs/kept --out changed --source other"), 0) << output();
  for (const char* words :
       {"another tokenizer.json than", "another generation_config.json than the run was made with: none -> ",
        "another tokenizer_config.json than"})
    EXPECT_TRUE(says(words)) << words << ": " << output();
  EXPECT_FALSE(says("another config.json")) << output();
}

TEST_F(Verbs, CheckShowsThePlanAndRefusesWhatCannotRun) {
  const std::string plan = result("check run.toml --ranks 2 --explain-batch");
  for (const char* part :
       {"prompts_per_step", "samples_per_prompt", "12", "updates", "trainer", "rollout", "reference"})
    EXPECT_NE(plan.find(part), std::string::npos) << part << " in\n" << plan;
  const Json good = lines(result("check run.toml --ranks 2 --json")).at(0);
  EXPECT_EQ(good.at("ok"), true);
  EXPECT_TRUE(good.at("errors").empty());
  EXPECT_EQ(good.at("batch").at("samples_per_step"), 12);
  EXPECT_EQ(good.at("batch").at("updates_total"), 3);
  EXPECT_EQ(good.at("roles").at("trainer").at("ranks"), Json({0, 1}));

  const std::string there = "check run.toml --ranks 2 ", here = "check run.toml ";
  const std::pair<const char*, const char*> refused[] = {
      {"train.samples_per_update=7", "train.samples_per_update"},
      {"roles.trainer.ranks=0-3", "roles.trainer.ranks"},
      {"rollout.samples_per_prompt=1", "rollout.samples_per_prompt"},
      {"rollout.max_new_tokens=256 data.overlong=truncate-left", "rollout.max_new_tokens"},
      {"data.train=none.jsonl", "data.train"},
      {"model.path=none", "model.path"},
      {"run.steps=0", "run.steps"}};
  for (const auto& [wrong, key] : refused) {
    // A plan for another machine goes without what is not on this one.
    const std::string& check = std::string_view(wrong).ends_with("=none.jsonl") ? here : there;
    EXPECT_EQ(program_.run(check + wrong), 64) << wrong;
    EXPECT_TRUE(says(key)) << wrong << "\n" << output();
    EXPECT_EQ(program_.run(check + wrong + " > plan.txt"), 64);
    EXPECT_TRUE(output().starts_with("temper: ") && says(" is refused\n  where: ")) << output();
    EXPECT_TRUE(program_.read("plan.txt").starts_with("would not start: 1 error"))
        << program_.read("plan.txt");
    ASSERT_EQ(program_.run(check + std::string(wrong) + " --json > plan.json"), 64);
    const Json bad = lines(program_.read("plan.json")).at(0);
    EXPECT_EQ(bad.at("ok"), false);
    ASSERT_FALSE(bad.at("errors").empty()) << wrong;
    for (const Json& legal : bad.at("errors")[0].at("legal")) {
      const std::string value = legal.is_string() ? legal.get<std::string>() : legal.dump();
      const std::string cure =
          fmt::format("{}{} {}={}", check, wrong, bad.at("errors")[0].at("key").get<std::string>(), value);
      EXPECT_EQ(program_.run(cure), 0) << cure << "\n" << output();
    }
  }
  EXPECT_FALSE(exists("runs")) << "check starts nothing";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
