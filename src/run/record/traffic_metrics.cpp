#include "src/run/record/traffic_metrics.h"

namespace temper {

void record_traffic(Journal& journal, Comm& ranks, std::span<const UpdateStats> updates, AxisBytes sent) {
  for (const UpdateStats& u : updates) sent = sent + u.sent;
  std::vector<double> bytes;
  for (const AxisRow& row : kTrafficAxes) bytes.push_back(static_cast<double>(sent[row.axis]));
  ranks.all_reduce_sum(bytes, "bytes sent over each axis, sum over trainer ranks");
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > 0) journal.set(std::string("perf/comm_bytes/") + kTrafficAxes[i].name, bytes[i]);
}

}  // namespace temper
