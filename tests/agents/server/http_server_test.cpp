#include "src/agents/server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/agents/server/server.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

TEST(HttpServer, ARequestComesWholeAndItsAnswerGoesBack) {
  TestServer server;
  EXPECT_EQ(server.server().url(), "http://127.0.0.1:" + std::to_string(server.port()));
  Client client(server.port());
  client.write(
      "POST /later?beta=true HTTP/1.1\r\nHost: h\r\nX-API-Key:  good \r\nCookie: a=b\r\n"
      "Content-Type: application/json; charset=utf-8\r\nX-Stainless-Retry-Count: 2\r\n"
      "Content-Length: 5\r\n\r\n{\"a\"}");
  const Exchange exchange = server.inbox.take();
  ASSERT_NE(exchange, nullptr);
  const HttpRequest& request = exchange->request();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/later");
  EXPECT_EQ(request.key, "good");
  EXPECT_EQ(request.body, "{\"a\"}");
  EXPECT_EQ(request.content_length, 5);
  const std::map<std::string, std::string> kept = {{"content-type", "application/json; charset=utf-8"},
                                                   {"x-stainless-retry-count", "2"}};
  EXPECT_EQ(request.headers, kept);
  EXPECT_FALSE(exchange->answered());
  exchange->reply(429, "slow down", {{"Retry-After", "1"}, {"x-should-retry", "false"}});
  const ClientAnswer answer = client.read();
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.body, "slow down");
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  EXPECT_EQ(answer.headers.at("x-should-retry"), "false");
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  for (const auto& [name, _] : answer.headers) EXPECT_EQ(name.find("access-control"), name.npos) << name;
  EXPECT_TRUE(becomes([&] { return exchange->delivered(); }));
  EXPECT_TRUE(exchange->answered());
  EXPECT_FALSE(exchange->gone());
  EXPECT_EQ(exchange->buffered(), 0);
}

TEST(HttpServer, AConnectionServesManyRequestsAlsoWrittenAtOnce) {
  TestServer server;
  Client client(server.port());
  for (int i = 0; i < 5; ++i) {
    client.write(post(std::to_string(i), kKey));
    EXPECT_EQ(client.read().body, std::to_string(i));
  }
  std::string all;
  for (int i = 0; i < 20; ++i) all += i % 4 == 3 ? get("/later", kKey) : post(std::to_string(i), kKey);
  client.write(all);
  for (int i = 0; i < 20; ++i) {
    if (i % 4 == 3) server.inbox.take()->reply(200, std::to_string(i));
    EXPECT_EQ(client.read().body, std::to_string(i));
  }
  EXPECT_EQ(server.server().connections(), 1);
}

TEST(HttpServer, BodiesOfEverySizeComeAndGoAsTheyAre) {
  TestServer server;
  Client client(server.port());
  for (const size_t size : {0, 1, 1000, 40'000, 65'536, 1'000'000, 16 << 20}) {
    std::string body(size, 'x');
    for (size_t i = 0; i < size; ++i) body[i] = static_cast<char>('a' + i * i % 23);
    std::thread writer([&] { client.write(post(body, kKey)); });
    const ClientAnswer answer = client.read();
    writer.join();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body == body) << size;
  }
}

TEST(HttpServer, ChunksAreTaken) {
  TestServer server;
  Client client(server.port());
  const std::string head = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" + kKey +
                           "Transfer-Encoding: Chunked\r\n\r\n";
  for (const char* end : {"0\r\n\r\n", "0\r\nTrailer: 1\r\n\r\n"}) {
    client.write(head + "3\r\nabc\r\n10\r\n0123456789abcdef\r\n");
    client.write(end);
    EXPECT_EQ(client.read().body, "abc0123456789abcdef");
  }
  client.write(get("/later", kKey));
  server.inbox.take()->reply(200, "next");
  EXPECT_EQ(client.read().body, "next");
  // Release 1.0.0 of the library refuses extensions, which no client sends.
  client.write(head + "10;ext=1\r\n0123456789abcdef\r\n0\r\n\r\n");
  const ClientAnswer answer = client.read();
  EXPECT_TRUE(answer.status == 400 || answer.body == "0123456789abcdef") << answer.body;
}

TEST(HttpServer, AClientThatWaitsForAWordBeforeItSendsGetsIt) {
  TestServer server;
  Client client(server.port());
  const std::string expects =
      "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
  client.write("POST /a HTTP/1.1\r\nHost: h\r\n" + kKey + expects);
  EXPECT_EQ(client.read_head().status, 100);
  client.write("abc");
  EXPECT_EQ(client.read().body, "abc");
  // Refused, it does not have to send.
  client.write("POST /a HTTP/1.1\r\nHost: h\r\n" + expects);
  EXPECT_EQ(client.read().status, 401);
  EXPECT_TRUE(client.closes(1));
}

TEST(HttpServer, AnOlderClientIsAnsweredAndLeft) {
  TestServer server;
  Client client(server.port());
  client.write("GET /later HTTP/1.0\r\n" + kKey + "\r\n");
  const Exchange exchange = server.inbox.take();
  exchange->begin();
  exchange->send("one ");
  exchange->send("two");
  exchange->end();
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_TRUE(client.closes(1));
  EXPECT_TRUE(becomes([&] { return exchange->delivered(); }));
}

TEST(HttpServer, PiecesGoOutAsTheyCome) {
  TestServer server;
  Client client(server.port());
  for (int round = 0; round < 2; ++round) {
    client.write(get("/later", kKey));
    const Exchange exchange = server.inbox.take();
    exchange->begin();
    const ClientAnswer head = client.read_head();  // before there is a piece
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
    EXPECT_EQ(head.headers.at("transfer-encoding"), "chunked");
    for (int i = 0; i < 50; ++i) {
      std::string piece;
      exchange->send("data: " + std::to_string(i) + "\n\n");
      ASSERT_TRUE(client.chunk(piece));
      EXPECT_EQ(piece, "data: " + std::to_string(i) + "\n\n");
    }
    EXPECT_FALSE(exchange->delivered());
    exchange->end();
    std::string last = "?";
    EXPECT_TRUE(client.chunk(last));
    EXPECT_EQ(last, "");
    EXPECT_TRUE(becomes([&] { return exchange->delivered(); }));
  }
}

TEST(HttpServer, WhatNobodyAnswersIs500AndWhatEndsInTheMiddleIsCut) {
  TestServer server;
  Client client(server.port());
  client.write(get("/later", kKey));
  server.inbox.take().reset();
  EXPECT_EQ(client.read().status, 500);
  client.write(get("/later", kKey));
  Exchange exchange = server.inbox.take();
  exchange->begin();
  exchange->send("begun");
  EXPECT_EQ(client.read_head().status, 200);
  exchange.reset();
  EXPECT_TRUE(client.closes(1));
}

TEST(HttpServer, AnAnswerIsGivenOnce) {
  TestServer server;
  Client client(server.port());
  client.write(get("/later", kKey));
  const Exchange exchange = server.inbox.take();
  expect_error(Exit::internal, {"ended"}, "a piece too early", [&] { exchange->send("x"); });
  exchange->reply(200, "once");
  expect_error(Exit::internal, {"twice"}, "a second answer", [&] { exchange->reply(200, "twice"); });
  EXPECT_EQ(client.read().body, "once");
}

TEST(HttpServer, AClientThatVanishesIsSeenSoon) {
  TestServer server;
  for (const bool streams : {false, true}) {
    Client client(server.port());
    client.write(get("/later", kKey));
    const Exchange exchange = server.inbox.take();
    if (streams) {
      exchange->begin();
      exchange->send("a piece");
      EXPECT_EQ(client.read_head().status, 200);
    }
    EXPECT_FALSE(exchange->gone());
    client.close();
    const Stopwatch watch;
    EXPECT_TRUE(becomes([&] { return exchange->gone(); }));
    EXPECT_LT(watch.seconds(), 1);  // 100 ms, and a machine that has others to serve
    streams ? exchange->send("to nobody") : exchange->reply(200, "to nobody");
    EXPECT_TRUE(becomes([&] { return server.server().connections() == 0; }));
    EXPECT_FALSE(exchange->delivered());
    EXPECT_EQ(exchange->buffered(), 0);
  }
}

TEST(HttpServer, AClientThatTakesNothingCostsBoundedMemory) {
  TestServer server({.max_unsent_bytes = 4 << 20});
  Client client(server.port(), 4096);
  client.write(get("/later", kKey));
  const Exchange exchange = server.inbox.take();
  exchange->begin();
  const std::string piece(1 << 20, 'x');
  int64_t most = 0;
  for (int i = 0; i < 64 && !exchange->gone(); ++i) {
    exchange->send(piece);
    most = std::max(most, exchange->buffered());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(exchange->gone());
  EXPECT_LE(most, 4 << 20);
  EXPECT_TRUE(becomes([&] { return server.server().connections() == 0; }));
}

TEST(HttpServer, EachOfManyClientsGetsItsOwnAnswer) {
  TestServer server;
  constexpr int kClients = 64, kTurns = 10;
  std::atomic<bool> done = false;
  // Late, and in another order than they came.
  std::thread answerer([&] {
    std::vector<Exchange> held;
    for (int answered = 0; answered < kClients * kTurns && !done;) {
      while (server.inbox.size() > 0) held.push_back(server.inbox.take());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (size_t i = held.size(); i-- > held.size() / 2 || (i < held.size() && held.size() < 8);) {
        const Exchange exchange = held[i];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
        const std::string body = exchange->request().body;
        if (answered++ % 2 == 0) {
          exchange->reply(200, body);
        } else {
          exchange->begin();
          for (const char letter : body) exchange->send(std::string(1, letter));
          exchange->end();
        }
        if (i == 0) break;
      }
    }
  });
  std::atomic<int> right = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c)
    clients.emplace_back([&, c] {
      Client client(server.port());
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::string body = std::to_string(c) + " asks " + std::to_string(turn);
        client.write("POST /later HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" + kKey +
                     "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
        right += client.read().body == body;
      }
    });
  for (std::thread& client : clients) client.join();
  done = true;
  answerer.join();
  EXPECT_EQ(right, kClients * kTurns);
}

TEST(HttpServer, ItEndsWhileClientsWaitAndLeavesNothing) {
  { const TestServer first; }  // what a process opens once
  const int64_t descriptors = open_descriptors(), before = threads();
  std::vector<Exchange> waiting;
  {
    TestServer server;
    std::vector<Client> clients;
    for (int i = 0; i < 100; ++i) {
      clients.emplace_back(server.port());
      clients.back().write(get("/later", kKey));
      waiting.push_back(server.inbox.take());
      if (i % 3 == 1) waiting.back()->begin();
    }
    clients.emplace_back(server.port());                     // says nothing
    for (int i = 0; i < 50; ++i) clients[i].write("GET /");  // of a next request
    std::thread late([&] {
      for (int i = 99; i > 50; i -= 3) waiting[i]->reply(200, "late");
    });
    late.join();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(threads(), before);
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (!waiting[i]->answered()) waiting[i]->reply(200, "to nobody");
    EXPECT_TRUE(waiting[i]->gone() || waiting[i]->delivered()) << i;
    EXPECT_TRUE(waiting[i]->request().path == "/later");
  }
}

TEST(HttpServer, ItEndsWhileOthersAnswer) {
  for (int round = 0; round < 20; ++round) {
    auto server = std::make_unique<TestServer>();
    std::vector<Client> clients;
    std::vector<Exchange> waiting;
    for (int i = 0; i < 16; ++i) {
      clients.emplace_back(server->port());
      clients.back().write(get("/later", kKey));
    }
    for (int i = 0; i < 16; ++i) waiting.push_back(server->inbox.take());
    std::thread answerer([&] {
      for (const Exchange& exchange : waiting) exchange->reply(200, "now");
    });
    server.reset();
    answerer.join();
  }
}

TEST(HttpServer, ClosedItTakesNobodyNewAndServesWhoIsThere) {
  TestServer server;
  Client client(server.port());
  client.write(get("/later", kKey));
  const Exchange exchange = server.inbox.take();
  server.server().close();
  EXPECT_FALSE(Client(server.port()).connected());
  exchange->reply(200, "still");
  EXPECT_EQ(client.read().body, "still");
  client.write(post("again", kKey));
  EXPECT_EQ(client.read().body, "again");
}

TEST(HttpServer, APortInUseAndAnAddressThatIsNoneAreSaid) {
  const TestServer server;
  const std::string port = std::to_string(server.port());
  const auto start = [](const std::string& address, int number) {
    TestServer({.address = address, .port = number, .port_key = "rollout.server.port"});
  };
  expect_error(Exit::environment,
               {"rollout.server.port: port " + port + " of address 127.0.0.1", "in use",
                "set rollout.server.port to another port, or to 0"},
               "in use", [&] { start("127.0.0.1", server.port()); });
  expect_error(Exit::environment, {"192.0.2.1", "port 0", "must be one of this host"}, "another host's",
               [&] { start("192.0.2.1", 0); });
  expect_error(Exit::usage, {"localhost"}, "a name", [&] { start("localhost", 0); });
  expect_error(Exit::usage, {"empty"}, "no address", [&] { start("", 0); });
  expect_error(Exit::usage, {"rollout.server.port", "65536"}, "no port", [&] { start("127.0.0.1", 65536); });
  EXPECT_EQ(HttpServer({.address = "0.0.0.0"}, {}, {}).url().substr(0, 17), "http://127.0.0.1:");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
