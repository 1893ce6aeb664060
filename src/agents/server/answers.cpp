#include "src/agents/server/answers.h"

#include <memory>

namespace temper {
namespace {

struct ReleaseResponse {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};
using Response = std::unique_ptr<MHD_Response, ReleaseResponse>;

/// What the library holds of a stream; it goes with the library's response.
struct Stream {
  MHD_Connection* connection;
  HttpCall& call;
};

ssize_t read_stream(void* stream, uint64_t, char* to, size_t size) {
  const auto& it = *static_cast<Stream*>(stream);
  return it.call.read(it.connection, to, size);
}

void end_stream(void* stream) { delete static_cast<Stream*>(stream); }

MHD_Result add_line(void* lines, MHD_ValueKind, const char* name, size_t name_size, const char* value,
                    size_t value_size) {
  static_cast<std::vector<HeaderLine>*>(lines)->push_back(
      {{name, name_size}, {value == nullptr ? "" : value, value == nullptr ? 0 : value_size}});
  return MHD_YES;
}

MHD_Result queue(MHD_Connection* connection, int status, Response response, const HttpHeaders& headers,
                 const std::string& content_type) {
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response.get(), "Content-Type", content_type.c_str());
  for (const auto& [name, value] : headers)
    MHD_add_response_header(response.get(), name.c_str(), value.c_str());
  return MHD_queue_response(connection, static_cast<unsigned>(status), response.get());
}

}  // namespace

std::vector<HeaderLine> header_lines(MHD_Connection* connection) {
  std::vector<HeaderLine> lines;
  MHD_get_connection_values_n(connection, MHD_HEADER_KIND, &add_line, &lines);
  return lines;
}

MHD_Result send_refusal(MHD_Connection* connection, const HttpRefusal& refusal, bool close) {
  Response response(MHD_create_response_from_buffer(
      refusal.body.size(), const_cast<char*>(refusal.body.data()), MHD_RESPMEM_MUST_COPY));
  if (response != nullptr && close) MHD_add_response_header(response.get(), "Connection", "close");
  return queue(connection, refusal.status, std::move(response), refusal.headers, refusal.content_type);
}

MHD_Result send_whole(MHD_Connection* connection, HttpCall& call) {
  const std::string& body = call.body();
  Response response(
      MHD_create_response_from_buffer(body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_PERSISTENT));
  return queue(connection, call.status(), std::move(response), call.headers(), call.content_type());
}

MHD_Result send_stream(MHD_Connection* connection, HttpCall& call) {
  constexpr size_t kBlock = size_t{16} << 10;
  auto stream = std::make_unique<Stream>(Stream{connection, call});
  Response response(
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kBlock, &read_stream, stream.get(), &end_stream));
  if (response != nullptr) [[maybe_unused]]
    Stream* const handed_over = stream.release();
  return queue(connection, call.status(), std::move(response), call.headers(), call.content_type());
}

}  // namespace temper
