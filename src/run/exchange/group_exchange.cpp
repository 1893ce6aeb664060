#include "src/run/exchange/group_exchange.h"

#include <algorithm>
#include <tuple>

#include "src/core/check.h"
#include "src/core/stopwatch.h"
#include "src/rl/trajectory_bytes.h"

namespace temper {
namespace {

/// What a message about a step is: a finished group, one that goes on, annotations, or the note that closes
/// the step.
enum Kind : int { kGroup, kUnfinished, kAnnotations, kClose };

std::string to_message(int64_t step, Kind kind, const std::string& bytes) {
  return dump_json_line({{"step", step}, {"kind", kind}}) + "\n" + bytes;
}

std::string close_message(int64_t step, const StepNote& note, size_t num_annotations) {
  return dump_json_line({{"step", step},
                         {"kind", kClose},
                         {"note", note_to_json(note)},
                         {"cut", note.cut},
                         {"annotations", num_annotations}}) +
         "\n";
}

Group group_from_bytes(std::string_view bytes) {
  std::vector<Group> groups = groups_from_bytes(bytes);
  CHECK(groups.size() == 1, "{} groups in a message of one", groups.size());
  return std::move(groups.front());
}

void sort_by_position(std::vector<Group>& groups) {
  std::sort(groups.begin(), groups.end(),
            [](const Group& a, const Group& b) { return position_of(a) < position_of(b); });
}

}  // namespace

GroupExchange::GroupExchange(Mailbox& mailbox, const RoleRanks& ranks, int64_t max_policy_lag, EndOfRun& end)
    : mailbox_(mailbox), ranks_(ranks), max_lag_(max_policy_lag), end_(end) {
  trainer_ = {kToTrainer, ranks.producers.size()};
  for (const std::vector<int>& stage : ranks.stages) {
    CHECK(!stage.empty(), "a stage without ranks");
    stages_.push_back({kToStage + static_cast<int>(stages_.size()), ranks.producers.size()});
    trainer_.num_senders += stage.size();
  }
}

void GroupExchange::start(int64_t step, int64_t produced) {
  for (Lane& lane : stages_) lane.finished = produced;
  trainer_.finished = step;
  put_back_until_ = produced;
  unfinished_[produced] = {};
}

void GroupExchange::put_back(int64_t step, StepInput input, size_t awaited) {
  put_back_open(step, std::move(input));
  trainer_.steps[step].closed = trainer_.num_senders - awaited;
}

void GroupExchange::put_back_open(int64_t step, StepInput input) {
  input.note.stop_requested = false;  // that stop is over
  input.note.owed = 0;                // the rollout ranks took it up
  Inbox& inbox = trainer_.steps[step];
  for (Group& group : input.groups) {
    const int64_t position = position_of(group);
    inbox.by_position.emplace(position, std::move(group));
  }
  inbox.notes[-1] = std::move(input.note);  // as if a rank had sent it
  put_back_until_ = std::max(put_back_until_, step);
}

void GroupExchange::put_back_unfinished(int64_t step, std::vector<Group> groups) {
  unfinished_[step] = std::move(groups);
}

void GroupExchange::send_to_trainer(const std::string& message) {
  for (const int rank : ranks_.trainer) mailbox_.post(rank, kToTrainer, message);
}

void GroupExchange::send_sampled(int64_t step, Group group) {
  ++groups_sent_[step];
  const std::string message = to_message(step, kGroup, groups_to_bytes({&group, 1}));
  send_to_trainer(message);
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const std::vector<int>& ranks = ranks_.stages[stage];
    mailbox_.post(ranks[static_cast<size_t>(position_of(group)) % ranks.size()], stages_[stage].channel,
                  message);
  }
}

void GroupExchange::send_unfinished(int64_t step, const Group& group) {
  send_to_trainer(to_message(step, kUnfinished, groups_to_bytes({&group, 1})));
}

void GroupExchange::close_sampled(int64_t step, StepNote note) {
  note.num_groups = groups_sent_[step];
  groups_sent_.erase(step);
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    for (const int rank : ranks_.stages[stage])
      mailbox_.post(rank, stages_[stage].channel, close_message(step, {.cut = note.cut}, 0));
  send_to_trainer(close_message(step, note, 0));
}

void GroupExchange::annotate(size_t stage, int64_t step, const std::vector<Annotation>& annotations) {
  if (annotations.empty()) return;
  annotations_sent_[{stage, step}] += annotations.size();
  send_to_trainer(to_message(step, kAnnotations, annotations_to_bytes(annotations)));
}

void GroupExchange::close(size_t stage, int64_t step, const StepNote& note) {
  send_to_trainer(close_message(step, note, annotations_sent_[{stage, step}]));
  annotations_sent_.erase({stage, step});
}

std::vector<std::string> GroupExchange::share(std::string bytes) {
  const int64_t call = ++shares_;
  for (const int rank : ranks_.producers)
    if (rank != mailbox_.rank()) mailbox_.post(rank, kShared, fmt::format("{}\n", call) + bytes);
  std::map<int, std::string>& come = shared_come_[call];
  come[mailbox_.rank()] = std::move(bytes);
  const Stopwatch waited;
  while (come.size() < ranks_.producers.size()) {
    if (std::optional<Message> message = mailbox_.poll(kShared)) {
      const size_t end = message->bytes.find('\n');
      shared_come_[std::stoll(message->bytes.substr(0, end))][message->from] = message->bytes.substr(end + 1);
    } else {
      end_.look();
      mailbox_.pause(waited.seconds(), "prompts of the other rollout ranks");
    }
  }
  std::vector<std::string> all;
  for (auto& [rank, text] : come) all.push_back(std::move(text));
  shared_come_.erase(call);
  return all;
}

/// Takes everything that has come to a role of this rank.
void GroupExchange::sort_in(Lane& lane) {
  while (std::optional<Message> message = mailbox_.poll(lane.channel)) {
    const size_t end = message->bytes.find('\n');
    CHECK(end != std::string::npos, "a message from rank {} without a header", message->from);
    const Json header = parse_json(message->bytes.substr(0, end), "message between ranks");
    const std::string_view bytes = std::string_view(message->bytes).substr(end + 1);
    const int64_t step = header.at("step").get<int64_t>();
    const int kind = header.at("kind").get<int>();
    // A checkpoint made with a larger lag may have brought more.
    CHECK(step > lane.finished && step <= std::max(lane.finished + max_lag_ + 1, put_back_until_),
          "groups of step {} came while step {} is under way, the policy lag is at most {}", step,
          lane.finished + 1, max_lag_);
    Inbox& inbox = lane.steps[step];
    most_steps_held_ = std::max(most_steps_held_, static_cast<int64_t>(lane.steps.size()));
    if (kind == kClose) {
      StepNote note = note_from_json(header.at("note"));
      note.cut = header.at("cut").get<bool>();
      add(inbox.notes[message->from], note);
      inbox.num_annotations += header.at("annotations").get<size_t>();
      ++inbox.closed;
    } else if (kind == kAnnotations) {
      for (Annotation& a : annotations_from_bytes(bytes)) inbox.annotations.push_back(std::move(a));
    } else if (kind == kUnfinished) {
      inbox.unfinished.push_back(group_from_bytes(bytes));
    } else if (&lane != &trainer_) {
      inbox.groups.push_back(group_from_bytes(bytes));
    } else {
      Group group = group_from_bytes(bytes);
      const int64_t position = position_of(group);
      CHECK(inbox.by_position.emplace(position, std::move(group)).second, "prompt {} came twice in step {}",
            position, step);
    }
  }
}

bool GroupExchange::waiting(size_t stage, int64_t step) {
  Lane& lane = stages_[stage];
  sort_in(lane);
  const Inbox& inbox = lane.steps[step];
  return inbox.taken < inbox.groups.size();
}

std::optional<Group> GroupExchange::take(size_t stage, int64_t step) {
  Lane& lane = stages_[stage];
  const Stopwatch waited;
  while (!end_.look()) {
    Inbox& inbox = lane.steps[step];
    if (waiting(stage, step)) return std::move(inbox.groups[inbox.taken++]);
    if (inbox.closed == lane.num_senders) break;
    mailbox_.pause(waited.seconds(), "groups for the next role");
  }
  for (const auto& [from, note] : lane.steps[step].notes) lane.cut = lane.cut || note.cut;
  lane.steps.erase(step);
  lane.finished = step;
  return std::nullopt;
}

GroupExchange::Inbox& GroupExchange::wait_closed(int64_t step) {
  const Stopwatch waited;
  while (trainer_.steps[step].closed < trainer_.num_senders) {
    sort_in(trainer_);
    end_.look();
    mailbox_.pause(waited.seconds(), "groups for the trainer");
  }
  Inbox& inbox = trainer_.steps[step];
  put_together(inbox, step);
  if (!unfinished_.contains(step)) {
    sort_by_position(inbox.unfinished);
    unfinished_[step] = std::move(inbox.unfinished);
  }
  return inbox;
}

/// The groups of a step in order, each with what all stages add: whatever the order in which it came.
void GroupExchange::put_together(Inbox& inbox, int64_t step) {
  std::sort(inbox.annotations.begin(), inbox.annotations.end(), [](const Annotation& a, const Annotation& b) {
    return std::tie(a.data_position, a.sample, a.field) < std::tie(b.data_position, b.sample, b.field);
  });
  for (const Annotation& a : inbox.annotations) {
    const auto group = inbox.by_position.find(a.data_position);
    CHECK(group != inbox.by_position.end(), "prompt {} is annotated and did not come in step {}",
          a.data_position, step);
    apply(a, group->second.samples.at(static_cast<size_t>(a.sample)));
  }
  for (auto& [position, group] : inbox.by_position) inbox.input.groups.push_back(std::move(group));
  for (const auto& [from, note] : inbox.notes) add(inbox.input.note, note);
  std::vector<Group>& groups = inbox.input.groups;
  CHECK(static_cast<int64_t>(groups.size()) == inbox.input.note.num_groups &&
            inbox.annotations.size() == inbox.num_annotations,
        "step {} has {} groups and {} annotations, {} and {} were sent", step, groups.size(),
        inbox.annotations.size(), inbox.input.note.num_groups, inbox.num_annotations);
  for (size_t i = 0; i < groups.size(); ++i)
    for (Trajectory& t : groups[i].samples) t.group = static_cast<int32_t>(i);
  inbox.by_position.clear();
  inbox.annotations.clear();
  inbox.num_annotations = 0;
  inbox.notes.clear();
}

StepInput GroupExchange::receive(int64_t step) {
  StepInput input = std::move(wait_closed(step).input);
  trainer_.steps.erase(step);
  trainer_.finished = step;
  stop_requested_ = input.note.stop_requested;
  unfinished_.erase(unfinished_.begin(), unfinished_.lower_bound(step));
  return input;
}

const StepInput& GroupExchange::peek(int64_t step) { return wait_closed(step).input; }

const std::vector<Group>& GroupExchange::unfinished_after(int64_t step) {
  const auto found = unfinished_.find(step);
  CHECK(found != unfinished_.end(), "what step {} left unfinished is not known", step);
  return found->second;
}

}  // namespace temper
