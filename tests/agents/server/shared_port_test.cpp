// A port that several servers take connections from: evenly, without those that stand still, until one of
// them closes it for all.

#include "src/agents/server/shared_port.h"

#include <fcntl.h>

#include <memory>
#include <vector>

#include "tests/agents/server/server.h"

namespace temper {
namespace {

/// Servers with a port in common; in one process, so that a test sees into each.
class Servers {
 public:
  explicit Servers(int count) {
    ports_.push_back(std::make_shared<SharedPort>("127.0.0.1", 0, "--port", count));
    for (int i = 1; i < count; ++i) {
      int copies[SharedPort::kDescriptors];
      for (size_t k = 0; k < std::size(copies); ++k)
        copies[k] = ::fcntl(ports_[0]->descriptors()[k], F_DUPFD_CLOEXEC, 0);
      ports_.push_back(std::make_shared<SharedPort>(copies, i, count));
    }
    for (const auto& port : ports_) {
      HttpOptions options;
      options.shared_port = port;
      servers_.push_back(std::make_unique<TestServer>(options));
    }
  }
  /// All but one, and those that are lost.
  void note_alive(int without = -1) const {
    for (int i = 0; i < static_cast<int>(ports_.size()); ++i)
      if (i != without && ports_[static_cast<size_t>(i)]) ports_[static_cast<size_t>(i)]->note_alive();
  }
  HttpServer& at(size_t i) { return servers_[i]->server(); }
  /// As a process that has died.
  void lose(size_t i) {
    servers_[i].reset();
    ports_[i].reset();
  }
  int port() const { return servers_.back()->port(); }

 private:
  std::vector<std::shared_ptr<SharedPort>> ports_;
  std::vector<std::unique_ptr<TestServer>> servers_;
};

/// Clients that have got an answer and stay; `without`: a server that stands still.
std::vector<Client> clients_of(const Servers& servers, int count, int without = -1) {
  std::vector<Client> clients;
  for (int i = 0; i < count; ++i) {
    servers.note_alive(without);
    clients.emplace_back(servers.port());
    clients.back().write(get("/health"));
    EXPECT_EQ(clients.back().read().status, 200) << i;
  }
  return clients;
}

TEST(SharedPort, ConnectionsAreSharedEvenly) {
  Servers servers(3);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(servers.at(i).port(), servers.port());
  const std::vector<Client> clients = clients_of(servers, 12);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(servers.at(i).connections(), 4) << i;
}

TEST(SharedPort, OneThatStandsStillOrHasDiedIsLeftOut) {
  Servers servers(3);
  const std::vector<Client> clients = clients_of(servers, 6, /*without=*/1);
  EXPECT_EQ(servers.at(0).connections(), 3);
  EXPECT_EQ(servers.at(1).connections(), 0);
  servers.lose(0);
  // Nobody tells the others: it counts as awake for a while.
  std::this_thread::sleep_for(std::chrono::duration<double>(SharedPort::kAwakeSeconds + 0.1));
  const std::vector<Client> more = clients_of(servers, 4, /*without=*/1);
  EXPECT_EQ(servers.at(2).connections(), 7);
}

/// Better a server that is late than none.
TEST(SharedPort, WhereNoneIsAwakeAllTakeConnections) {
  const Servers servers(2);
  for (int i = 0; i < 4; ++i) {
    Client client(servers.port());
    client.write(get("/health"));
    EXPECT_EQ(client.read().status, 200);
  }
}

TEST(SharedPort, OneThatClosesItClosesItForAll) {
  Servers servers(2);
  std::vector<Client> clients = clients_of(servers, 2);
  servers.at(1).close();
  EXPECT_FALSE(Client(servers.port()).connected());
  EXPECT_TRUE(becomes([&] { return servers.at(0).closed(); }));
  for (Client& client : clients) {
    client.write(get("/health"));
    EXPECT_EQ(client.read().status, 200);
  }
  servers.at(0).close();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
