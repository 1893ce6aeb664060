// Doors read what real clients sent (tests/golden/clients, made by `make test-clients` and
// tests/clients/prune_requests.py), and their dialogues go on from what was sampled. What they read of
// answers.

#include <gtest/gtest.h>

#include "src/agents/doors/completions_door.h"
#include "src/agents/service/doors.h"
#include "src/agents/service/routes.h"
#include "src/agents/sessions/session.h"
#include "src/core/file.h"
#include "src/core/split.h"

namespace temper {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load("tests/golden/tokenizer/minimind");
  return loaded;
}
const ChatTemplate& chat() {
  static const ChatTemplate made(read_file("tests/golden/chat/templates/qwen2.5.jinja", 1 << 20), "qwen2.5");
  return made;
}
const TurnCut& cut() {
  static const TurnCut made(tokenizer(), chat(), Json::object());
  return made;
}

struct Recorded {
  std::string client;
  Route route = Route::health;
  Json body;
  int status = 0;
};

std::vector<Recorded> recorded() {
  std::vector<Recorded> all;
  for (const std::string& line : split(read_file("tests/golden/clients/requests.jsonl", 1 << 20), '\n')) {
    if (line.empty()) continue;
    const Json request = parse_json(line, "a recorded request");
    const std::string path = request["path"];
    const auto routed = route_of(path.substr(0, path.find('?')));
    EXPECT_TRUE(routed) << path;
    if (routed) all.push_back({request["client"], routed->route, request["body"], request["status"]});
  }
  return all;
}

TEST(Recorded, DoorsReadWhatClientsSend) {
  const Doors doors(tokenizer());
  std::map<std::string, int> read;
  for (const Recorded& request : recorded()) {
    SCOPED_TRACE(request.client + ": " + request.body.dump().substr(0, 300));
    if (request.route == Route::tokenize) {
      EXPECT_GT(describe(request.route, request.body, tokenizer(), 64)["count"], 0);
      continue;
    }
    try {
      const DoorRequest r = doors.at(request.route).read(request.body, {});
      EXPECT_EQ(request.status, 200);
      EXPECT_NE(r.messages.is_array(), !r.prompts.empty());
      if (r.messages.is_array()) {
        EXPECT_FALSE(cut().whole(r.messages, r.tools, r.arguments).empty());
      }
      ++read[request.client];
    } catch (const RequestError& error) {
      EXPECT_EQ(request.status, 400) << error.message();
    }
  }
  for (const char* client : {"serve_clients", "lm_eval", "renderers", "mini_swe_agent", "claude_code"})
    EXPECT_GT(read[client], 0) << client;
}

/// What the policy said where the next request of a dialogue has it as the assistant's last message.
TurnText said_in(const Json& messages) {
  TurnText said;
  for (const Json& message : messages) {
    if (message["role"] != "assistant") continue;
    said = {};
    if (message.contains("content") && message["content"].is_string()) said.content = message["content"];
    for (const Json& call : message.value("tool_calls", Json::array())) {
      const Json& arguments = call["function"]["arguments"];
      said.calls.push_back({call["function"]["name"], arguments, arguments.dump()});
    }
  }
  return said;
}

/// By turn: the one that it goes on from.
std::vector<std::optional<size_t>> parents(const std::string& client) {
  const Doors doors(tokenizer());
  const int32_t end = *tokenizer().token_id("<|im_end|>");
  Session session(
      {.line_prompt = {}, .stop_token_ids = {end}, .num_ids = tokenizer().vocab_size(), .limits = {}}, cut());
  std::vector<DoorRequest> dialogue;
  for (const Recorded& request : recorded())
    if (request.client == client) dialogue.push_back(doors.at(request.route).read(request.body, {}));
  std::vector<std::optional<size_t>> all;
  for (size_t i = 0; i < dialogue.size(); ++i) {
    const TurnStart start = session.ask(
        {.messages = dialogue[i].messages, .tools = dialogue[i].tools, .arguments = dialogue[i].arguments});
    EXPECT_EQ(start.kind, TurnStart::Kind::sample);
    all.push_back(session.turn(start.turn).parent);
    Response r;
    r.tokens = {11, end};
    r.mask = {1, 1};
    r.logprobs = {-1, -1};
    r.versions = {{0, 2}};
    r.finish = FinishReason::stop;
    session.sampled(start.turn, r, i + 1 < dialogue.size() ? said_in(dialogue[i + 1].messages) : TurnText{});
    session.delivered(start.turn);
  }
  return all;
}

TEST(Recorded, DialoguesGoOnFromWhatWasSampled) {
  using Parents = std::vector<std::optional<size_t>>;
  // A system message in the middle, calls that come back with other keys, results in blocks.
  EXPECT_EQ(parents("claude_code"), (Parents{std::nullopt, 0, 1}));
  // A turn that could not be parsed is left out of the history; the one behind it has two calls and two
  // results.
  EXPECT_EQ(parents("mini_swe_agent"), (Parents{std::nullopt, std::nullopt, 1, 2}));
}

/// Clients compare a log-prob with the largest of the token's place: parts of characters are keys of their
/// own.
TEST(Recorded, PartsOfCharactersHaveNamesOfTheirOwn) {
  std::vector<int32_t> parts;
  for (int32_t id = 0; id < tokenizer().vocab_size() && parts.size() < 2; ++id) {
    const std::string bytes = tokenizer().token_bytes(id);
    if (bytes.size() == 1 && static_cast<unsigned char>(bytes[0]) >= 0x80) parts.push_back(id);
  }
  ASSERT_EQ(parts.size(), 2u);
  DoorChoice choice;
  choice.prompt = {11, parts[0]};
  choice.prompt_logprobs = {{}, {.logprob = -3, .best = parts[1], .best_logprob = -1}};
  const CompletionsDoor door(tokenizer());
  const DoorRequest request = door.read({{"prompt", {11, parts[0]}}, {"echo", true}, {"logprobs", 1}}, {});
  const std::string answer = door.answer(request, {.id = "a", .prompt = choice.prompt, .choices = {choice}});
  const Json logprobs = Json::parse(answer)["choices"][0]["logprobs"];
  const Json& top = logprobs["top_logprobs"][1];
  ASSERT_EQ(top.size(), 2u) << answer;
  EXPECT_EQ(top[logprobs["tokens"][1].get<std::string>()], -3);
  EXPECT_TRUE(logprobs["tokens"][1].get<std::string>().starts_with("bytes:\\x")) << answer;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
