// `temper serve` as clients use it: its greedy answers are those of `temper generate` and `temper score` bit
// for bit, through every door, whole and streamed, alone and among others; what it cannot do it says by name.

#include <set>
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

  void start(const std::string& more = "", int ranks = 0, const std::string& of = "--model model") {
    const std::string arguments = "serve " + of + " --port 0 --dtype bf16 " + more;
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
  static std::string request(const std::string& path, const Json& body, const std::string& key = "") {
    const std::string text = body.dump();
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}",
        path, key.empty() ? "" : "x-api-key: " + key + "\r\n", text.size(), text);
  }
  ClientAnswer post(const std::string& path, const Json& body, const std::string& key = "") const {
    return said(request(path, body, key));
  }
  /// The answer to what goes out as it is.
  ClientAnswer said(const std::string& bytes) const {
    Client client(port_);
    client.write(bytes);
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
  /// Stops the server when it makes two answers of so many tokens, one of them as a stream, of which `piece`
  /// has come.
  void stop_inside_of_answers(Client& whole, Client& stream, int tokens, std::string& piece) const {
    Json body = chat("x", tokens);
    body["logit_bias"] = {{"2", -1000}, {"0", -1000}};  // it says no end by itself
    whole.write(request("/v1/chat/completions", body));
    body["stream"] = true;
    stream.write(request("/v1/chat/completions", body));
    ASSERT_EQ(stream.read_head(60).status, 200);
    ASSERT_TRUE(stream.chunk(piece, 60));
    ::kill(job_->pid(), SIGTERM);
  }
  static std::string question(int i) { return fmt::format("What is {} plus {}?", i, 3 * i); }

  /// Clients that ask at once.
  static void at_once(int count, const std::function<void(int)>& client) {
    std::vector<std::thread> clients;
    for (int i = 0; i < count; ++i) clients.emplace_back(client, i);
    for (std::thread& one : clients) one.join();
  }

  /// What `temper generate` says to the questions.
  std::vector<Json> generated(int count, const std::string& of = "--model model") const {
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines += Json{{"messages", {{{"role", "user"}, {"content", question(i)}}}}}.dump() + "\n";
    program_.write("prompts.jsonl", lines);
    std::filesystem::remove(program_.path("said.jsonl"));  // its answers would be kept
    EXPECT_EQ(program_.run("generate " + of +
                           " --chat --prompts prompts.jsonl --out said.jsonl --dtype bf16 "
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
  at_once(64, [&](int i) {
    expect_choice(ask("/v1/chat/completions", chat(question(i % 6)))["choices"][0],
                  expected[static_cast<size_t>(i % 6)]);
  });
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
    at_once(64, [&](int i) {
      expect_choice(ask("/v1/chat/completions", chat(question(i % 6)))["choices"][0],
                    expected[static_cast<size_t>(i % 6)]);
    });
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

/// What is open goes on to its end, and nobody is let in meanwhile.
TEST_F(Serve, AStopWaitsForOpenAnswers) {
  prepare_long_model();
  start("", 0, "--model long");
  Client whole(port_), stream(port_);
  std::string piece;
  ASSERT_NO_FATAL_FAILURE(stop_inside_of_answers(whole, stream, 1500, piece));
  std::string events = piece;
  while (stream.chunk(piece, 60) && !piece.empty()) events += piece;
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n")) << events.substr(events.size() - 200);
  const ClientAnswer answer = whole.read(60);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["usage"]["completion_tokens"], 1500);
  EXPECT_EQ(job_->wait(), 0);
  EXPECT_NE(program_.read("serve.log").find("2 open answers go on for 60 s"), std::string::npos);
}

/// Where the time is too short for them, their clients hear why they get no more.
TEST_F(Serve, AStopThatCannotWaitTellsItsClients) {
  prepare_long_model();
  start("--grace 0.05", 0, "--model long");
  Client whole(port_), stream(port_);
  std::string piece, last;
  ASSERT_NO_FATAL_FAILURE(stop_inside_of_answers(whole, stream, 16000, piece));
  bool ended = false;
  while (stream.chunk(piece, 60) && !(ended = piece.empty())) last = piece;
  EXPECT_TRUE(ended) << "the stream has its end";
  EXPECT_NE(last.find("data: {\"error\""), std::string::npos) << last;
  EXPECT_NE(last.find("the server stops"), std::string::npos) << last;
  const ClientAnswer answer = whole.read(60);
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  EXPECT_NE(answer.body.find("the server stops"), std::string::npos) << answer.body;
  EXPECT_EQ(job_->wait(), 0);
  EXPECT_NE(program_.read("serve.log").find("2 answers are not whole after 0.05 s (--grace)"),
            std::string::npos)
      << program_.read("serve.log");
}

/// The weights of a run's newest checkpoint, which are not those that it began with.
TEST_F(Serve, ACheckpointIsServed) {
  program_.write("run.toml",
                 run_config("\nrun.name = \"trained\"\nrun.steps = 1\nalgorithm.name = \"sft\"\n"
                            "data.chat = true\ntrain.samples_per_update = 4\noptimizer.lr = 0.05\n"
                            "checkpoint.every = 1\n"));
  program_.write("data.jsonl", sums(4));
  ASSERT_EQ(program_.run("train run.toml"), 0) << output();
  const std::string of = "--checkpoint runs/trained";
  const std::vector<Json> begun = generated(3), expected = generated(3, of);
  EXPECT_NE(begun[0]["tokens"], expected[0]["tokens"]);
  for (const std::string& folder : {of, "--checkpoint " + checkpoint("trained", 1)}) {
    start("", 0, folder);
    for (int i = 0; i < 3; ++i)
      expect_choice(ask("/v1/chat/completions", chat(question(i)))["choices"][0],
                    expected[static_cast<size_t>(i)]);
    ::kill(job_->pid(), SIGTERM);
    EXPECT_EQ(job_->wait(), 0);
  }
}

TEST_F(Serve, SeedAndSamplingAreTheRequests) {
  start();
  const auto ids = [&](const Json& wish) {
    Json body = chat("Say something.");
    body["temperature"] = 1;
    body.update(wish);
    return ask("/v1/chat/completions", body)["choices"][0]["token_ids"];
  };
  const Json five = ids({{"seed", 5}}), greedy = ids({{"temperature", 0}});
  EXPECT_EQ(ids({{"seed", 5}}), five);
  EXPECT_NE(ids({{"seed", 6}}), five);
  const Json none = Json::object();
  EXPECT_NE(ids(none), ids(none)) << "without a seed each request has numbers of its own";
  EXPECT_NE(greedy, five);
  EXPECT_EQ(ids({{"temperature", 0}, {"seed", 6}}), greedy);
  EXPECT_EQ(ids({{"top_k", 1}, {"seed", 5}}), greedy);
  EXPECT_EQ(ids({{"top_p", 1e-6}, {"seed", 5}}), greedy);
  EXPECT_EQ(ids({{"min_p", 1}, {"seed", 5}}), greedy);
  for (const Json& id : ids({{"logit_bias", {{"77", 1000}}}, {"seed", 5}})) EXPECT_EQ(id, 77);
  std::set<int> seen;
  for (const Json& id : ids({{"frequency_penalty", 100}, {"temperature", 0}}))
    EXPECT_TRUE(seen.insert(id.get<int>()).second) << id;
  EXPECT_EQ(std::ssize(ids({{"seed", 5}, {"max_completion_tokens", 3}, {"min_tokens", 3}})), 3);
}

/// What clients send is in no log: neither keys, right or wrong, nor bodies, whatever becomes of them.
TEST_F(Serve, NothingOfRequestsIsLogged) {
  const std::string key = "0123456789abcdefSECRETMARK", mark = "SECRETMARK";
  program_.write("key", key + "\n");
  start("--key-file key");
  const std::string path = "/v1/chat/completions";
  Json field = chat("x");
  field["response_format"] = {{"type", mark}};
  EXPECT_EQ(post(path, chat(mark), key).status, 200);
  EXPECT_EQ(post(path, chat(mark), "another" + mark).status, 401);
  EXPECT_EQ(post("/v1/" + mark, chat(mark), key).status, 404);
  EXPECT_EQ(post(path, field, key).status, 400);
  const std::string head = "POST " + path + " HTTP/1.1\r\nHost: x\r\nx-api-key: " + key + "\r\n",
                    json = "Content-Type: application/json\r\n";
  EXPECT_EQ(said(head + json + "Content-Length: 12\r\n\r\n{\"" + mark).status, 400);
  EXPECT_EQ(said(head + json + "Content-Length: 99999999\r\n\r\n" + mark).status, 413);
  EXPECT_EQ(said(head + "Content-Type: text/" + mark + "\r\nContent-Length: 0\r\n\r\n").status, 415);
  EXPECT_EQ(said("POST " + path + " " + mark + "\r\n" + mark + "\r\n\r\n").status, 400);
  Client(port_).write_and_close(request(path, chat(mark, 100), key));
  Client(port_).write_and_close(head + json + "Content-Length: 100\r\n\r\n" + mark);
  EXPECT_EQ(post(path, chat(mark), key).status, 200);
  ::kill(job_->pid(), SIGTERM);
  EXPECT_EQ(job_->wait(), 0);
  EXPECT_EQ(program_.read("serve.log").find(mark), std::string::npos) << program_.read("serve.log");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_or_list(argc, argv); }
