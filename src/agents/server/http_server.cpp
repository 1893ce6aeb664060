#include "src/agents/server/http_server.h"

#include "src/agents/server/network.h"

namespace temper {

HttpServer::HttpServer(const HttpOptions& options, HttpAllow allow, HttpReceive receive)
    : network_(std::make_unique<Network>(options, std::move(allow), std::move(receive))) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return network_->listener().port(); }
std::string HttpServer::url() const { return network_->listener().url(); }
int HttpServer::connections() const { return network_->connections(); }
void HttpServer::close() { network_->close(); }
bool HttpServer::closed() const { return network_->closed(); }

}  // namespace temper
