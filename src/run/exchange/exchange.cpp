#include "src/run/exchange/exchange.h"

#include <algorithm>

#include "src/core/json.h"
#include "src/core/stopwatch.h"
#include "src/rl/trajectory_bytes.h"

namespace temper {
namespace {

enum Channel : int { kToTrainer = 1, kShared = 2, kWeights = 3, kEnd = 4, kToStage = 5 };  // the last: and up

int64_t position_of(const Group& g) {
  CHECK(!g.samples.empty(), "a group without samples");
  return g.samples.front().data_position;
}

void sort_by_position(std::vector<Group>& groups) {
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return position_of(a) < position_of(b); });
}

Json to_json(const StepNote& note) {
  Json replaced = Json::array();
  for (const auto& [position, reward] : note.replaced) replaced.push_back({position, reward});
  return {{"sums", note.sums},
          {"maxima", note.maxima},
          {"replaced", replaced},
          {"num_groups", note.num_groups},
          {"data_position", note.data_position},
          {"stop_requested", note.stop_requested}};
}

/// What a message about a step is: a finished group, one that goes on, or the note that closes the step.
enum Kind : int { kGroup, kUnfinished, kClose };

std::string to_message(int64_t step, Kind kind, size_t stage, const Group& group) {
  return dump_json_line({{"step", step}, {"kind", kind}, {"stage", stage}}) + "\n" +
         groups_to_bytes({&group, 1});
}

std::string to_message(int64_t step, const StepNote& note) {
  return dump_json_line({{"step", step}, {"kind", kClose}, {"note", to_json(note)}}) + "\n";
}

StepNote note_from_json(const Json& json) {
  StepNote note{.sums = json.at("sums").get<std::map<std::string, double>>(),
                .maxima = json.at("maxima").get<std::map<std::string, double>>(),
                .replaced = {},
                .num_groups = json.at("num_groups").get<int64_t>(),
                .data_position = json.at("data_position").get<int64_t>(),
                .stop_requested = json.at("stop_requested").get<bool>()};
  for (const Json& prompt : json.at("replaced"))
    note.replaced[prompt.at(0).get<int64_t>()] = prompt.at(1).get<double>();
  return note;
}

void add(StepNote& all, const StepNote& note) {
  for (const auto& [name, value] : note.sums) all.sums[name] += value;
  for (const auto& [name, value] : note.maxima) all.maxima[name] = std::max(all.maxima[name], value);
  all.replaced.insert(note.replaced.begin(), note.replaced.end());
  all.num_groups += note.num_groups;
  all.data_position = std::max(all.data_position, note.data_position);
  all.stop_requested = all.stop_requested || note.stop_requested;
}

/// What a stage adds to a group.
void merge(Group& group, const Group& part) {
  for (size_t i = 0; i < group.samples.size(); ++i) {
    Trajectory& t = group.samples[i];
    const Trajectory& more = part.samples.at(i);
    if (t.ref_logprobs.empty()) t.ref_logprobs = more.ref_logprobs;
    for (const auto& named : more.reward_parts)
      if (std::find(t.reward_parts.begin(), t.reward_parts.end(), named) == t.reward_parts.end())
        t.reward_parts.push_back(named);
  }
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
  return {groups_from_bytes(bytes.substr(end + 1)),
          note_from_json(parse_json(std::string(bytes.substr(0, end)), "note of a step"))};
}

Exchange::Exchange(Mailbox& mailbox, const RoleRanks& ranks, int64_t max_policy_lag)
    : mailbox_(&mailbox), ranks_(ranks), max_lag_(max_policy_lag) {
  trainer_ = {kToTrainer, ranks.producers.size()};
  for (const std::vector<int>& stage : ranks.stages) {
    CHECK(!stage.empty(), "a stage without ranks");
    stages_.push_back({kToStage + static_cast<int>(stages_.size()), ranks.producers.size()});
    trainer_.num_senders += stage.size();
  }
}

void Exchange::start(int64_t step, int64_t produced, std::map<int64_t, StepInput> ahead,
                     std::vector<Group> unfinished) {
  version_ = step;
  for (Lane& lane : stages_) lane.finished = produced;
  trainer_.finished = step;
  for (auto& [s, input] : ahead) {
    input.note.stop_requested = false;  // that stop is over
    Inbox& inbox = trainer_.steps[s];
    inbox.input = std::move(input);
    inbox.closed = trainer_.num_senders;
  }
  unfinished_[produced] = std::move(unfinished);
}

bool Exchange::trains(int rank) const { return contains(ranks_.trainer, rank); }

void Exchange::send_to_trainer(const std::string& message) {
  for (const int rank : ranks_.trainer) mailbox_->post(rank, kToTrainer, message);
}

void Exchange::send_sampled(int64_t step, Group group) {
  ++groups_sent_[step];
  const std::string message = to_message(step, kGroup, 0, group);
  if (stages_.empty()) send_to_trainer(message);
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const std::vector<int>& ranks = ranks_.stages[stage];
    mailbox_->post(ranks[static_cast<size_t>(position_of(group)) % ranks.size()], stages_[stage].channel,
                   message);
  }
}

void Exchange::send_unfinished(int64_t step, const Group& group) {
  send_to_trainer(to_message(step, kUnfinished, 0, group));
}

void Exchange::close_sampled(int64_t step, StepNote note) {
  note.num_groups = groups_sent_[step];
  groups_sent_.erase(step);
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    for (const int rank : ranks_.stages[stage])
      mailbox_->post(rank, stages_[stage].channel, to_message(step, StepNote{}));
  send_to_trainer(to_message(step, note));
}

void Exchange::pass_on(size_t stage, int64_t step, Group group) {
  send_to_trainer(to_message(step, kGroup, stage, group));
}

void Exchange::close(int64_t step, const StepNote& note) { send_to_trainer(to_message(step, note)); }

std::vector<std::string> Exchange::share(std::string bytes) {
  const int64_t call = ++shares_;
  for (const int rank : ranks_.producers)
    if (rank != mailbox_->rank()) mailbox_->post(rank, kShared, fmt::format("{}\n", call) + bytes);
  std::map<int, std::string>& come = shared_come_[call];
  come[mailbox_->rank()] = std::move(bytes);
  const Stopwatch waited;
  while (come.size() < ranks_.producers.size()) {
    if (std::optional<Message> message = mailbox_->poll(kShared)) {
      const size_t end = message->bytes.find('\n');
      shared_come_[std::stoll(message->bytes.substr(0, end))][message->from] = message->bytes.substr(end + 1);
    } else {
      mailbox_->pause(waited.seconds(), "prompts of the other rollout ranks");
    }
  }
  std::vector<std::string> all;
  for (auto& [rank, text] : come) all.push_back(std::move(text));
  shared_come_.erase(call);
  return all;
}

/// Takes everything that has come to a role of this rank.
void Exchange::sort_in(Lane& lane) {
  while (std::optional<Message> message = mailbox_->poll(lane.channel)) {
    const size_t end = message->bytes.find('\n');
    CHECK(end != std::string::npos, "a message from rank {} without a header", message->from);
    const Json header = parse_json(message->bytes.substr(0, end), "message between ranks");
    const int64_t step = header.at("step").get<int64_t>();
    const int kind = header.at("kind").get<int>();
    CHECK(step > lane.finished && step <= lane.finished + max_lag_ + 1,
          "groups of step {} came while step {} is under way, the policy lag is at most {}", step,
          lane.finished + 1, max_lag_);
    Inbox& inbox = lane.steps[step];
    most_steps_held_ = std::max(most_steps_held_, static_cast<int64_t>(lane.steps.size()));
    if (kind == kClose) {
      add(inbox.notes[message->from], note_from_json(header.at("note")));
      ++inbox.closed;
      continue;
    }
    const auto stage = header.at("stage").get<size_t>();
    for (Group& g : groups_from_bytes(std::string_view(message->bytes).substr(end + 1)))
      if (kind == kUnfinished) {
        inbox.unfinished.push_back(std::move(g));
      } else if (&lane != &trainer_) {
        inbox.input.groups.push_back(std::move(g));
      } else {
        const int64_t position = position_of(g);
        CHECK(inbox.parts.emplace(std::pair(position, stage), std::move(g)).second,
              "prompt {} came twice in step {}", position, step);
      }
  }
}

bool Exchange::waiting(size_t stage, int64_t step) {
  Lane& lane = stages_[stage];
  sort_in(lane);
  const Inbox& inbox = lane.steps[step];
  return inbox.taken < inbox.input.groups.size();
}

std::optional<Group> Exchange::take(size_t stage, int64_t step) {
  Lane& lane = stages_[stage];
  const Stopwatch waited;
  while (!ended()) {
    Inbox& inbox = lane.steps[step];
    if (waiting(stage, step)) return std::move(inbox.input.groups[inbox.taken++]);
    if (inbox.closed == lane.num_senders) break;
    mailbox_->pause(waited.seconds(), "groups for the next role");
  }
  lane.steps.erase(step);
  lane.finished = step;
  return std::nullopt;
}

Exchange::Inbox& Exchange::wait_closed(int64_t step) {
  const Stopwatch waited;
  while (trainer_.steps[step].closed < trainer_.num_senders) {
    sort_in(trainer_);
    mailbox_->pause(waited.seconds(), "groups for the trainer");
  }
  Inbox& inbox = trainer_.steps[step];
  put_together(inbox, step);
  if (!unfinished_.contains(step)) {
    sort_by_position(inbox.unfinished);
    unfinished_[step] = std::move(inbox.unfinished);
  }
  return inbox;
}

/// The groups of a step in order, each with what all stages add.
void Exchange::put_together(Inbox& inbox, int64_t step) {
  std::vector<Group>& groups = inbox.input.groups;
  const size_t per_group = std::max<size_t>(1, stages_.size()), num_parts = inbox.parts.size();
  for (auto& [of, part] : inbox.parts)
    if (groups.empty() || position_of(groups.back()) != of.first)
      groups.push_back(std::move(part));
    else
      merge(groups.back(), part);
  inbox.parts.clear();
  for (const auto& [from, note] : inbox.notes) add(inbox.input.note, note);
  inbox.notes.clear();
  const auto wanted = static_cast<size_t>(inbox.input.note.num_groups);
  CHECK(groups.size() == wanted && (num_parts == 0 || num_parts == wanted * per_group),
        "step {} has {} groups in {} parts, {} groups were sent", step, groups.size(), num_parts, wanted);
  for (size_t i = 0; i < groups.size(); ++i)
    for (Trajectory& t : groups[i].samples) t.group = static_cast<int32_t>(i);
}

StepInput Exchange::receive(int64_t step) {
  StepInput input = std::move(wait_closed(step).input);
  trainer_.steps.erase(step);
  trainer_.finished = step;
  unfinished_.erase(unfinished_.begin(), unfinished_.lower_bound(step));
  return input;
}

const StepInput& Exchange::peek(int64_t step) { return wait_closed(step).input; }

const std::vector<Group>& Exchange::unfinished_after(int64_t step) {
  const auto found = unfinished_.find(step);
  CHECK(found != unfinished_.end(), "what step {} left unfinished is not known", step);
  return found->second;
}

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
  for (const std::vector<int>& stage : ranks_.stages) others.insert(others.end(), stage.begin(), stage.end());
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
