#pragma once
// The server of `serve`: paths, keys and lanes over the network's server; what it asks goes to a desk.

#include "src/agents/server/http_server.h"
#include "src/agents/service/free_lane.h"
#include "src/agents/service/lane_threads.h"

namespace temper {

class ServeService {
 public:
  struct Options {
    HttpOptions http = {};
    std::string key = {};  // empty: none is asked for
    ServeRules rules = {};
  };
  /// As many threads as the desk has lanes. All outlive it. `chat` may be null.
  ServeService(const Options& options, const Tokenizer& tokenizer, const ChatTemplate* chat,
               EngineDesk& desk);
  ServeService(const ServeService&) = delete;
  ServeService& operator=(const ServeService&) = delete;

  std::string url() const { return server_->url(); }
  int port() const { return server_->port(); }
  /// New requests hear that it stops; what is open goes on.
  void close();
  /// Nobody can connect any longer: HttpServer::closed().
  bool closed() const { return server_->closed(); }
  /// Answers that are not on their way to their clients as a whole.
  int64_t open() const;
  /// What is open ends: its clients hear that the server stops.
  void end_answers();

 private:
  std::optional<HttpRefusal> allow(const HttpHead& head, bool& known) const;
  void receive(std::shared_ptr<HttpExchange> exchange);

  const Options o_;
  const Doors doors_;
  std::optional<TurnCut> cut_;
  std::optional<LaneThreads<FreeLane>> lanes_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> closed_ = false;
  std::optional<HttpServer> server_;  // last: its thread uses all others
};

}  // namespace temper
