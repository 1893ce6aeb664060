// `temper serve` as clients use it: its greedy answers are those of `temper generate` and `temper score` bit
// for bit, through every door, whole and streamed, alone and among others; what it cannot do it says by name.

#include <thread>

#include "tests/agents/server/client.h"
#include "tests/support/background.h"
#include "tests/support/run_fixture.h"
#include "tests/support/run_list.h"

namespace temper {
namespace {

class Serve : public RunFixture {
 protected:
  void SetUp() override { ASSERT_EQ(program_.init_model("model"), 0) << program_.output(); }

  void start(const std::string& more = "", int ranks = 0) {
    const std::string arguments = "serve --model model --port 0 --dtype bf16 " + more;
    std::filesystem::remove(program_.path("serve.log"));  // the last one said another port
    job_.emplace(program_,
                 ranks > 0 ? program_.mpirun(ranks, arguments) : program_.temper() + " " + arguments,
                 "serve.log");
    ASSERT_TRUE(job_->until([&] {
      return exists("serve.log") && program_.read("serve.log").find("(context of") != std::string::npos;
    }));
    const std::string log = program_.read("serve.log"), begin = "127.0.0.1:";
    port_ = std::stoi(log.substr(log.find(begin) + begin.size()));
  }
  ClientAnswer post(const std::string& path, const Json& body, const std::string& key = "") const {
    Client client(port_);
    const std::string text = body.dump();
    client.write(fmt::format(
        "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}",
        path, key.empty() ? "" : "x-api-key: " + key + "\r\n", text.size(), text));
    return client.read(60);
  }
  Json ask(const std::string& path, const Json& body) const {
    const ClientAnswer answer = post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? Json::parse(answer.body) : Json();
  }
  static Json chat(const std::string& text, int tokens = 12) {
    return {{"model", "any"},       {"messages", {{{"role", "user"}, {"content", text}}}},
            {"max_tokens", tokens}, {"temperature", 0},
            {"logprobs", true},     {"return_token_ids", true}};
  }
  static std::string question(int i) { return fmt::format("What is {} plus {}?", i, 3 * i); }

  /// What `temper generate` says to the questions.
  std::vector<Json> generated(int count) const {
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines += Json{{"messages", {{{"role", "user"}, {"content", question(i)}}}}}.dump() + "\n";
    program_.write("prompts.jsonl", lines);
    EXPECT_EQ(
        program_.run("generate --model model --chat --prompts prompts.jsonl --out said.jsonl --dtype bf16 "
                     "rollout.temperature=0 rollout.max_new_tokens=12"),
        0)
        << output();
    return program_.json_lines("said.jsonl");
  }

  std::optional<Background> job_;
  int port_ = 0;
};

void expect_choice(const Json& choice, const Json& expected) {
  EXPECT_EQ(choice["token_ids"], expected["tokens"]);
  std::vector<double> logprobs;
  for (const Json& token : choice["logprobs"]["content"]) logprobs.push_back(token["logprob"]);
  EXPECT_EQ(Json(logprobs), expected["logprobs"]);
}

TEST_F(Serve, SaysWhatGenerateSays) {
  const std::vector<Json> expected = generated(6);
  start();
  for (int i = 0; i < 6; ++i)
    expect_choice(ask("/v1/chat/completions", chat(question(i)))["choices"][0],
                  expected[static_cast<size_t>(i)]);
  std::vector<std::thread> clients;
  for (int i = 0; i < 24; ++i)
    clients.emplace_back([&, i] {
      expect_choice(ask("/v1/chat/completions", chat(question(i % 6)))["choices"][0],
                    expected[static_cast<size_t>(i % 6)]);
    });
  for (std::thread& client : clients) client.join();
  const Json tokens =
      ask("/inference/v1/generate", {{"model", "any"},
                                     {"token_ids", expected[0]["prompt_tokens"]},
                                     {"sampling_params", {{"max_tokens", 12}, {"temperature", 0}}}});
  EXPECT_EQ(tokens["choices"][0]["token_ids"], expected[0]["tokens"]);
  EXPECT_EQ(tokens["choices"][0]["logprobs"]["content"][3]["token"],
            fmt::format("token_id:{}", expected[0]["tokens"][3].get<int>()));
  const Json message =
      ask("/v1/messages?beta=true", {{"model", "any"},
                                     {"max_tokens", 12},
                                     {"temperature", 0},
                                     {"messages", {{{"role", "user"}, {"content", question(1)}}}}});
  EXPECT_EQ(message["content"][0]["text"], expected[1]["text"]);
  EXPECT_EQ(message["usage"]["output_tokens"], expected[1]["tokens"].size());
}

TEST_F(Serve, RanksOfAHostShareAPort) {
  const std::vector<Json> expected = generated(6);
  for (const int ranks : {2, 4}) {
    start("", ranks);
    std::vector<std::thread> clients;
    for (int i = 0; i < 24; ++i)
      clients.emplace_back([&, i] {
        for (int turn = 0; turn < 2; ++turn)
          expect_choice(ask("/v1/chat/completions", chat(question(i % 6)))["choices"][0],
                        expected[static_cast<size_t>(i % 6)]);
      });
    for (std::thread& client : clients) client.join();
    const std::string log = program_.read("serve.log");
    EXPECT_EQ(log.find("serving at"), log.rfind("serving at")) << log;
    EXPECT_NE(log.find(fmt::format("shared by {} ranks", ranks)), std::string::npos) << log;
    // One that stands still keeps nobody out, and a stop of one is a stop of all.
    ::kill(job_->rank(ranks - 1), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    for (int i = 0; i < 2 * ranks; ++i) ask("/v1/chat/completions", chat(question(i % 6)));
    ::kill(job_->rank(0), SIGTERM);
    for (int i = 0; i < 1000 && Client(port_).connected(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(Client(port_).connected());
    ::kill(job_->rank(ranks - 1), SIGCONT);
    EXPECT_EQ(job_->wait(), 0);
  }
}

TEST_F(Serve, ARankThatDiesLeavesNoPort) {
  start("", 2);
  EXPECT_EQ(post("/v1/chat/completions", chat("x")).status, 200);
  ::kill(job_->rank(1), SIGKILL);
  EXPECT_NE(job_->wait(), 0);
  EXPECT_FALSE(Client(port_).connected());
  EXPECT_TRUE(job_->processes().empty());
}

TEST_F(Serve, StreamsSayTheSame) {
  const std::vector<Json> expected = generated(1);
  start();
  Json body = chat(question(0));
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const ClientAnswer stream = post("/v1/chat/completions", body);
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  std::istringstream lines(stream.body);
  std::string text;
  std::vector<int32_t> ids;
  int64_t usage = 0;
  bool done = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: ")) continue;
    done = line == "data: [DONE]";
    if (done) break;
    const Json chunk = Json::parse(line.substr(6));
    if (chunk.contains("usage")) usage = chunk["usage"]["completion_tokens"];
    for (const Json& choice : chunk["choices"]) {
      text += choice["delta"].value("content", "");
      for (const Json& id : choice.value("token_ids", Json::array())) ids.push_back(id);
    }
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(text, expected[0]["text"].get<std::string>());
  EXPECT_EQ(Json(ids), expected[0]["tokens"]);
  EXPECT_EQ(usage, std::ssize(ids));
  const ClientAnswer events =
      post("/v1/messages", {{"model", "any"},
                            {"max_tokens", 12},
                            {"temperature", 0},
                            {"stream", true},
                            {"messages", {{{"role", "user"}, {"content", question(0)}}}}});
  for (const char* event : {"message_start", "content_block_start", "content_block_delta",
                            "content_block_stop", "message_delta", "message_stop"})
    EXPECT_NE(events.body.find(fmt::format("event: {}\n", event)), std::string::npos) << event << events.body;
}

TEST_F(Serve, TellsWhatItHas) {
  start();
  Client client(port_);
  client.write("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  const Json models = Json::parse(client.read().body)["data"];
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0]["id"], "model");
  EXPECT_EQ(models[0]["max_model_len"], 256);
  const Json messages{{{"role", "user"}, {"content", question(3)}}};
  const Json asked{{"model", "any"}, {"messages", messages}, {"max_tokens", 1}};
  EXPECT_EQ(ask("/v1/messages/count_tokens", asked)["input_tokens"],
            ask("/v1/chat/completions", asked)["usage"]["prompt_tokens"]);
  const Json ids = ask("/tokenize", {{"prompt", "some text"}})["tokens"];
  EXPECT_EQ(ask("/detokenize", {{"tokens", ids}})["prompt"], "some text");
}

/// A prompt that was asked for before is found in pages, but for its last row, through each door.
TEST_F(Serve, UsageTellsWhatWasFoundInPages) {
  start();
  const Json first = ask("/v1/chat/completions", chat(question(0))),
             second = ask("/v1/chat/completions", chat(question(0)))["usage"];
  const Json ids = first["prompt_token_ids"];
  const int64_t prompt = std::ssize(ids);
  EXPECT_EQ(first["usage"]["prompt_tokens"], prompt);
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(second["prompt_tokens_details"]["cached_tokens"], prompt - 1);
  Json body{{"model", "any"},
            {"max_tokens", 4},
            {"temperature", 0},
            {"messages", {{{"role", "user"}, {"content", question(0)}}}}};
  const Json usage = ask("/v1/messages", body)["usage"];
  EXPECT_EQ(usage["cache_read_input_tokens"], prompt - 1);
  EXPECT_EQ(usage["input_tokens"], 1);
  body["stream"] = true;
  const std::string events = post("/v1/messages", body).body;
  const std::string begin = events.substr(0, events.find("content_block_start"));
  EXPECT_NE(begin.find(fmt::format("\"cache_read_input_tokens\":{}", prompt - 1)), std::string::npos)
      << begin;
  const Json tokens =
      ask("/inference/v1/generate", {{"token_ids", ids}, {"sampling_params", {{"max_tokens", 4}}}});
  EXPECT_EQ(tokens["usage"]["prompt_tokens_details"]["cached_tokens"], prompt - 1);
  // Two answers to each of two prompts, one of which is known.
  const Json texts =
      ask("/v1/completions", {{"prompt", {ids, {9, 8, 7}}}, {"max_tokens", 4}, {"n", 2}})["usage"];
  EXPECT_EQ(texts["prompt_tokens"], prompt + 3);
  EXPECT_EQ(texts["prompt_tokens_details"]["cached_tokens"], prompt - 1);
}

/// What log-likelihood tasks read: the bits of `temper score`, and the likeliest token of each place.
TEST_F(Serve, EchoHasTheScoresOfThePrompt) {
  program_.write("ids.jsonl", "{\"tokens\": [5, 77, 300, 12, 12, 900, 4, 4000, 21]}\n");
  ASSERT_EQ(program_.run("score --model model --input ids.jsonl --dtype bf16"), 0) << output();
  const Json scored = Json::parse(output().substr(output().find('{')));
  start();
  const Json answer = ask("/v1/completions", {{"model", "any"},
                                              {"prompt", {{5, 77, 300, 12, 12, 900, 4, 4000, 21}, {9, 8, 7}}},
                                              {"max_tokens", 1},
                                              {"temperature", 0},
                                              {"logprobs", 1},
                                              {"echo", true}});
  const Json said = answer["choices"][0]["logprobs"];
  ASSERT_EQ(said["token_logprobs"].size(), 10u);
  EXPECT_TRUE(said["token_logprobs"][0].is_null());
  for (size_t i = 1; i < 9; ++i) {
    EXPECT_EQ(said["token_logprobs"][i], scored["logprobs"][i - 1]) << i;
    double best = -1e9;
    for (const auto& [token, logprob] : said["top_logprobs"][i].items())
      best = std::max(best, logprob.get<double>());
    EXPECT_GE(best, said["token_logprobs"][i].get<double>());
  }
  EXPECT_EQ(answer["choices"].size(), 2u);
  // The prompt alone: the same numbers, and no token behind them; it may fill the context.
  const Json alone = ask("/v1/completions", {{"prompt", {5, 77, 300, 12, 12, 900, 4, 4000, 21}},
                                             {"max_tokens", 0},
                                             {"logprobs", 1},
                                             {"echo", true}});
  Json numbers = said["token_logprobs"], tops = said["top_logprobs"];
  numbers.erase(9);
  tops.erase(9);
  const Json& choice = alone["choices"][0];
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], numbers);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"], tops);
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(alone["usage"]["completion_tokens"], 0);
  EXPECT_EQ(alone["usage"]["prompt_tokens"], 9);
  const Json full(std::vector<int>(256, 7));
  Json body{{"prompt", full}, {"max_tokens", 0}, {"echo", true}, {"n", 2}};
  EXPECT_EQ(ask("/v1/completions", body)["choices"].size(), 2u);
  body["max_tokens"] = 1;
  EXPECT_EQ(post("/v1/completions", body).status, 400);
  body["max_tokens"] = 0;
  body["echo"] = false;
  const ClientAnswer nothing = post("/v1/completions", body);
  EXPECT_EQ(nothing.status, 400);
  EXPECT_NE(nothing.body.find("max_tokens"), std::string::npos) << nothing.body;
}

TEST_F(Serve, SaysByNameWhatItCannotDo) {
  program_.write("key", "0123456789abcdef0123456789abcdef\n");
  start("--key-file key");
  const std::string key = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(post("/v1/chat/completions", chat("x")).status, 401);
  EXPECT_EQ(post("/v1/chat/completions", chat("x"), key).status, 200);
  EXPECT_EQ(post("/v1/nothing", chat("x"), key).status, 404);
  for (const auto& [field, value] :
       std::map<std::string, Json>{{"response_format", {{"type", "json_object"}}},
                                   {"tool_choice", "required"},
                                   {"top_logprobs", 5},
                                   {"temperature", "hot"},
                                   {"n", 0},
                                   {"messages", Json::array()},
                                   {"stop", {1, 2}}}) {
    Json body = chat("x");
    body[field] = value;
    const ClientAnswer answer = post("/v1/chat/completions", body, key);
    EXPECT_EQ(answer.status, 400) << field;
    EXPECT_NE(answer.body.find(field), std::string::npos) << answer.body;
  }
  const ClientAnswer longer = post("/v1/chat/completions", chat(std::string(200000, 'x')), key);
  EXPECT_EQ(longer.status, 400);
  EXPECT_NE(longer.body.find("maximum context length"), std::string::npos) << longer.body;
  EXPECT_EQ(program_.run("serve --model model --address 0.0.0.0"), 64);
  EXPECT_TRUE(says("--key-file")) << output();
}

TEST_F(Serve, AStopWaitsForOpenAnswers) {
  start();
  std::thread client(
      [&] { EXPECT_EQ(ask("/v1/chat/completions", chat("x", 200))["usage"]["completion_tokens"], 200); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(job_->pid(), SIGTERM);
  client.join();
  EXPECT_EQ(job_->wait(), 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
