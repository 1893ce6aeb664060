#include "src/agents/server/http_exchange.h"

#include "src/agents/server/http_call.h"

namespace temper {

HttpExchange::HttpExchange(std::shared_ptr<HttpCall> call) : call_(std::move(call)) {}
HttpExchange::~HttpExchange() { call_->drop(); }

const HttpRequest& HttpExchange::request() const { return call_->request(); }

void HttpExchange::reply(int status, std::string body, const HttpHeaders& headers,
                         const std::string& content_type) {
  call_->reply(status, std::move(body), headers, content_type);
}

void HttpExchange::begin(const std::string& content_type, const HttpHeaders& headers) {
  call_->begin(content_type, headers);
}

void HttpExchange::send(const std::string& piece) { call_->send(piece); }
void HttpExchange::end() { call_->end(); }
bool HttpExchange::answered() const { return call_->answered(); }
bool HttpExchange::gone() const { return call_->gone(); }
bool HttpExchange::delivered() const { return call_->delivered(); }
bool HttpExchange::lost() const { return call_->lost(); }
int64_t HttpExchange::buffered() const { return call_->buffered(); }

}  // namespace temper
