#pragma once
// The lanes of a server, each with a thread of its own that also hears the news of the desk.

#include "src/agents/service/engine_desk.h"
#include "src/core/threads/job_thread.h"

namespace temper {

template <class Lane>
class LaneThreads {
 public:
  /// As many as the desk has; make(number) returns a lane. The desk outlives them.
  template <class Make>
  LaneThreads(EngineDesk& desk, const Make& make) {
    constexpr double kTickSeconds = 0.1;
    for (size_t i = 0; i < desk.lanes(); ++i) {
      lanes_.push_back(make(i));
      threads_.push_back(
          std::make_unique<JobThread>([lane = lanes_.back().get()] { lane->tick(); }, kTickSeconds));
    }
    desk.listen([this](size_t lane, DeskNews news) {
      post(lane,
           [news = std::make_shared<DeskNews>(std::move(news))](Lane& to) { to.hear(std::move(*news)); });
    });
  }

  size_t size() const { return lanes_.size(); }
  const Lane& operator[](size_t lane) const { return *lanes_[lane]; }
  /// job(lane), on its thread.
  template <class Job>
  void post(size_t lane, Job job) {
    threads_[lane]->post([to = lanes_[lane].get(), job = std::move(job)] { job(*to); });
  }

 private:
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::unique_ptr<JobThread>> threads_;  // end before the lanes
};

}  // namespace temper
