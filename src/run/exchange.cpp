#include "src/run/exchange.h"

#include <algorithm>

#include "src/core/json.h"
#include "src/core/stopwatch.h"
#include "src/rl/trajectory_bytes.h"

namespace temper {
namespace {

enum Channel : int { kToReference = 1, kToTrainer = 2, kWeights = 3, kEnd = 4 };

int32_t index_of(const Group& g) {
  CHECK(!g.samples.empty(), "a group without samples");
  return g.samples.front().group;
}

Json to_json(const StepNote& note) {
  return {{"sums", note.sums},
          {"maxima", note.maxima},
          {"data_position", note.data_position},
          {"stop_requested", note.stop_requested}};
}

/// A group of a step, or (without one) the note that closes it.
std::string to_message(int64_t step, const Group* group, const StepNote& note) {
  Json header{{"step", step}, {"closes", group == nullptr}};
  if (!group) header["note"] = to_json(note);
  std::string bytes = dump_json_line(header) + "\n";
  if (group) bytes += groups_to_bytes({group, 1});
  return bytes;
}

void add(StepNote& all, const Json& note) {
  for (const auto& [name, value] : note.at("sums").items()) all.sums[name] += value.get<double>();
  for (const auto& [name, value] : note.at("maxima").items())
    all.maxima[name] = std::max(all.maxima[name], value.get<double>());
  all.data_position = std::max(all.data_position, note.at("data_position").get<int64_t>());
  all.stop_requested = all.stop_requested || note.at("stop_requested").get<bool>();
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

}  // namespace

std::string step_input_to_bytes(const StepInput& input) {
  return dump_json_line(to_json(input.note)) + "\n" + groups_to_bytes(input.groups);
}

StepInput step_input_from_bytes(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  CHECK(end != std::string_view::npos, "a step without its note");
  StepInput input{groups_from_bytes(bytes.substr(end + 1)), {}};
  add(input.note, parse_json(std::string(bytes.substr(0, end)), "note of a step"));
  return input;
}

Exchange::Exchange(Mailbox& mailbox, const RoleRanks& ranks, int64_t max_policy_lag)
    : mailbox_(&mailbox), ranks_(ranks), max_lag_(max_policy_lag) {}

void Exchange::start(int64_t step, int64_t produced, std::map<int64_t, StepInput> ahead) {
  version_ = step;
  finished_ = trains(mailbox_->rank()) ? step : produced;
  for (auto& [s, input] : ahead) input.note.stop_requested = false;  // that stop is over
  for (auto& [s, input] : ahead)
    complete_[s] = {std::move(input), ranks_.producers.size() + ranks_.reference.size(), 0};
}

bool Exchange::trains(int rank) const { return contains(ranks_.trainer, rank); }

void Exchange::send(int channel, int to, int64_t step, const Group* group, const StepNote& note) {
  mailbox_->post(to, channel, to_message(step, group, note));
}

void Exchange::send_sampled(int64_t step, Group group) {
  if (ranks_.reference.empty()) return send_referenced(step, std::move(group));
  const auto at = static_cast<size_t>(index_of(group)) % ranks_.reference.size();
  send(kToReference, ranks_.reference[at], step, &group, {});
}

void Exchange::close_sampled(int64_t step, const StepNote& note) {
  for (int rank : ranks_.reference) send(kToReference, rank, step, nullptr, {});
  for (int rank : ranks_.trainer) send(kToTrainer, rank, step, nullptr, note);
}

void Exchange::send_referenced(int64_t step, Group group) {
  for (int rank : ranks_.trainer) send(kToTrainer, rank, step, &group, {});
}

void Exchange::close_referenced(int64_t step, const StepNote& note) {
  for (int rank : ranks_.trainer) send(kToTrainer, rank, step, nullptr, note);
}

/// Takes everything that has come on a channel.
void Exchange::sort_in(int channel, Inboxes& inboxes) {
  while (std::optional<Message> message = mailbox_->poll(channel)) {
    const size_t end = message->bytes.find('\n');
    CHECK(end != std::string::npos, "a message from rank {} without a header", message->from);
    const Json header = parse_json(message->bytes.substr(0, end), "message between ranks");
    const int64_t step = header.at("step").get<int64_t>();
    CHECK(step > finished_ && step <= finished_ + max_lag_ + 1,
          "groups of step {} came while step {} is under way, the policy lag is at most {}", step,
          finished_ + 1, max_lag_);
    Inbox& inbox = inboxes[step];
    most_steps_held_ = std::max(most_steps_held_, static_cast<int64_t>(inboxes.size()));
    if (header.at("closes").get<bool>()) {
      add(inbox.input.note, header.at("note"));
      ++inbox.closed;
      continue;
    }
    for (Group& g : groups_from_bytes(std::string_view(message->bytes).substr(end + 1)))
      inbox.input.groups.push_back(std::move(g));
  }
}

bool Exchange::sampled_waiting(int64_t step) {
  sort_in(kToReference, sampled_);
  const Inbox& inbox = sampled_[step];
  return inbox.taken < inbox.input.groups.size();
}

std::optional<Group> Exchange::take_sampled(int64_t step) {
  const Stopwatch waited;
  while (!ended()) {
    Inbox& inbox = sampled_[step];
    if (sampled_waiting(step)) return std::move(inbox.input.groups[inbox.taken++]);
    if (inbox.closed == ranks_.producers.size()) break;
    mailbox_->pause(waited.seconds(), "groups for the reference");
  }
  sampled_.erase(step);
  if (!trains(mailbox_->rank())) finished_ = step;
  return std::nullopt;
}

Exchange::Inbox& Exchange::wait_closed(int64_t step) {
  const Stopwatch waited;
  while (complete_[step].closed < ranks_.producers.size() + ranks_.reference.size()) {
    sort_in(kToTrainer, complete_);
    mailbox_->pause(waited.seconds(), "groups for the trainer");
  }
  std::vector<Group>& groups = complete_[step].input.groups;
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return index_of(a) < index_of(b); });
  for (size_t i = 0; i < groups.size(); ++i)
    CHECK(index_of(groups[i]) == static_cast<int32_t>(i), "group {} of step {} is missing or came twice", i,
          step);
  return complete_[step];
}

StepInput Exchange::receive(int64_t step) {
  StepInput input = std::move(wait_closed(step).input);
  complete_.erase(step);
  finished_ = step;
  return input;
}

const StepInput& Exchange::peek(int64_t step) { return wait_closed(step).input; }

void Exchange::publish_weights(const ParameterStore& weights, int64_t version) {
  CHECK(version == version_ || version == version_ + 1, "version {} published after {}", version, version_);
  version_ = version;
  std::vector<int> receivers;
  for (int rank : ranks_.producers)
    if (!trains(rank)) receivers.push_back(rank);
  if (receivers.empty()) return;
  if (!transfer_) transfer_.emplace(weights, static_cast<int>(ranks_.trainer.size()));
  const Stopwatch waited;
  while (mailbox_->outgoing_bytes(kWeights) > 0) mailbox_->pause(waited.seconds(), "weights, version before");
  const auto me = std::lower_bound(ranks_.trainer.begin(), ranks_.trainer.end(), mailbox_->rank());
  const std::string bytes =
      transfer_->message(weights, static_cast<int>(me - ranks_.trainer.begin()), version);
  for (int rank : receivers) mailbox_->post(rank, kWeights, bytes);
  weight_bytes_moved_ += static_cast<int64_t>(bytes.size() * receivers.size());
}

bool Exchange::receive_weights(ParameterStore& weights, int64_t version) {
  if (trains(mailbox_->rank())) {
    CHECK(version == version_, "a step wants weights of version {}, the trainer is at {}", version, version_);
    return true;
  }
  if (!transfer_) transfer_.emplace(weights, static_cast<int>(ranks_.trainer.size()));
  const Stopwatch waited;
  for (size_t source = 0; source < ranks_.trainer.size();) {
    std::deque<std::string>& come = weights_come_[ranks_.trainer[source]];
    if (!come.empty()) {
      transfer_->apply(weights, static_cast<int>(source++), version, come.front());
      weight_bytes_moved_ += static_cast<int64_t>(come.front().size());
      come.pop_front();
      continue;
    }
    const bool last = ended();  // looked at first: versions that were sent before the end are still taken
    if (std::optional<Message> message = mailbox_->poll(kWeights))
      weights_come_[message->from].push_back(std::move(message->bytes));
    else if (last)
      return false;
    else
      mailbox_->pause(waited.seconds(), "weights from the trainer");
  }
  transfer_->check_digest(weights);
  version_ = version;
  return true;
}

void Exchange::end_run() {
  if (mailbox_->rank() != ranks_.trainer.front()) return;
  std::vector<int> others = ranks_.producers;
  others.insert(others.end(), ranks_.reference.begin(), ranks_.reference.end());
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  for (int rank : others)
    if (!trains(rank)) mailbox_->post(rank, kEnd, "");
}

bool Exchange::ended() {
  if (mailbox_->poll(kEnd)) ended_ = true;
  return ended_;
}

}  // namespace temper
