#include "src/run/record/traffic_metrics.h"

namespace temper {

void record_traffic(Journal& journal, Comm& ranks, std::span<const UpdateStats> updates, AxisBytes sent) {
  for (const UpdateStats& u : updates) sent = sent + u.sent;
  std::vector<double> bytes;
  for (const int64_t n : sent.of) bytes.push_back(static_cast<double>(n));
  ranks.all_reduce_sum(bytes, "bytes sent over each axis, sum over trainer ranks");
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > 0) journal.set(std::string("perf/comm_bytes/") + kAxes[i].name, bytes[i]);
}

}  // namespace temper
