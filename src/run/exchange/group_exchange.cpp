#include "src/run/exchange/group_exchange.h"

#include <algorithm>
#include <tuple>

#include "src/core/check.h"
#include "src/core/stopwatch.h"
#include "src/rl/trajectory_bytes.h"

namespace temper {
namespace {

/// What a message about a step is: a finished group, one that goes on, annotations, those of a stage that
/// learns, or the note that closes the step.
enum Kind : int { kGroup, kUnfinished, kAnnotations, kLearning, kClose };

std::string to_message(int64_t step, Kind kind, const std::string& bytes) {
  return dump_json_line({{"step", step}, {"kind", kind}}) + "\n" + bytes;
}

std::string close_message(int64_t step, const StepNote& note, size_t num_annotations, bool learning) {
  return dump_json_line({{"step", step},
                         {"kind", kClose},
                         {"note", note_to_json(note)},
                         {"cut", note.cut},
                         {"annotations", num_annotations},
                         {"learning", learning}}) +
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
    : mailbox_(mailbox), ranks_(ranks), end_(end) {
  whole_ = {.channel = kWholeSteps,
            .num_senders = ranks.producers.size(),
            .most_steps = max_policy_lag + (ranks.trains(mailbox.rank()) ? 1 : 2)};
  for (const std::vector<int>& stage : ranks.stages) {
    CHECK(!stage.empty(), "a stage without ranks");
    (ranks.learning_stages.contains(stages_.size()) ? whole_.num_learning : whole_.num_senders) +=
        stage.size();
    stages_.push_back({.channel = kToStage + static_cast<int>(stages_.size()),
                       .num_senders = ranks.producers.size(),
                       .most_steps = max_policy_lag + 1});
  }
}

void GroupExchange::start(int64_t step, int64_t produced) {
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    stages_[stage].finished = ranks_.learning_stages.contains(stage) ? step : produced;
  whole_.finished = step;
  put_back_until_ = produced;
  unfinished_[produced] = {};
}

void GroupExchange::put_back(int64_t step, StepInput input, size_t awaited) {
  put_in_stages(step, input, /*closed=*/true);
  take_back(step, std::move(input));
  whole_.steps[step].said.closed = whole_.num_senders - awaited;
}

void GroupExchange::put_back_open(int64_t step, StepInput input) {
  put_in_stages(step, input, /*closed=*/false);
  take_back(step, std::move(input));
}

void GroupExchange::take_back(int64_t step, StepInput input) {
  input.note.stop_requested = false;  // that stop is over
  input.note.owed = 0;                // the rollout ranks took it up
  Inbox& inbox = whole_.steps[step];
  for (Group& group : input.groups) {
    const int64_t position = position_of(group);
    inbox.by_position.emplace(position, std::move(group));
  }
  inbox.said.notes[-1] = std::move(input.note);  // as if a rank had sent it
  put_back_until_ = std::max(put_back_until_, step);
}

/// What is dealt to this rank in stages that learn: they annotate the step in this run.
void GroupExchange::put_in_stages(int64_t step, const StepInput& input, bool closed) {
  for (const size_t stage : ranks_.learning_stages) {
    Inbox& inbox = stages_[stage].steps[step];
    for (const Group& group : input.groups)
      if (receiver_of(stage, group) == mailbox_.rank()) inbox.groups.push_back(group);
    inbox.said.closed = closed ? ranks_.producers.size() : 0;
  }
}

int GroupExchange::receiver_of(size_t stage, const Group& group) const {
  const std::vector<int>& ranks = ranks_.stages[stage];
  return ranks[static_cast<size_t>(position_of(group)) % ranks.size()];
}

void GroupExchange::put_back_unfinished(int64_t step, std::vector<Group> groups) {
  unfinished_[step] = std::move(groups);
}

void GroupExchange::send_whole(const std::string& message) {
  for (const int rank : ranks_.with_whole_steps()) mailbox_.post(rank, kWholeSteps, message);
}

void GroupExchange::send_sampled(int64_t step, Group group) {
  ++groups_sent_[step];
  const std::string message = to_message(step, kGroup, groups_to_bytes({&group, 1}));
  send_whole(message);
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    mailbox_.post(receiver_of(stage, group), stages_[stage].channel, message);
}

void GroupExchange::send_unfinished(int64_t step, const Group& group) {
  send_whole(to_message(step, kUnfinished, groups_to_bytes({&group, 1})));
}

void GroupExchange::close_sampled(int64_t step, StepNote note) {
  note.num_groups = groups_sent_[step];
  groups_sent_.erase(step);
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    for (const int rank : ranks_.stages[stage])
      mailbox_.post(rank, stages_[stage].channel, close_message(step, {.cut = note.cut}, 0, false));
  send_whole(close_message(step, note, 0, false));
}

void GroupExchange::annotate(size_t stage, int64_t step, const std::vector<Annotation>& annotations) {
  if (annotations.empty()) return;
  annotations_sent_[{stage, step}] += annotations.size();
  const Kind kind = ranks_.learning_stages.contains(stage) ? kLearning : kAnnotations;
  send_whole(to_message(step, kind, annotations_to_bytes(annotations)));
}

void GroupExchange::close(size_t stage, int64_t step, const StepNote& note) {
  const bool learning = ranks_.learning_stages.contains(stage);
  send_whole(close_message(step, note, annotations_sent_[{stage, step}], learning));
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
    CHECK(step > lane.finished && step <= std::max(lane.finished + lane.most_steps, put_back_until_),
          "groups of step {} came while step {} is under way, at most {} are", step, lane.finished + 1,
          lane.most_steps);
    Inbox& inbox = lane.steps[step];
    most_steps_held_ = std::max(most_steps_held_, static_cast<int64_t>(lane.steps.size()));
    if (kind == kClose) {
      StepNote note = note_from_json(header.at("note"));
      note.cut = header.at("cut").get<bool>();
      Said& said = header.at("learning").get<bool>() ? inbox.learning : inbox.said;
      add(said.notes[message->from], note);
      said.num_annotations += header.at("annotations").get<size_t>();
      ++said.closed;
    } else if (kind == kAnnotations || kind == kLearning) {
      Said& said = kind == kLearning ? inbox.learning : inbox.said;
      for (Annotation& a : annotations_from_bytes(bytes)) said.annotations.push_back(std::move(a));
    } else if (kind == kUnfinished) {
      inbox.unfinished.push_back(group_from_bytes(bytes));
    } else if (&lane != &whole_) {
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
  while (end_.look(), !ends_before(stage, step)) {
    Inbox& inbox = lane.steps[step];
    if (waiting(stage, step)) return std::move(inbox.groups[inbox.taken++]);
    if (inbox.said.closed == lane.num_senders) break;
    mailbox_.pause(waited.seconds(), "groups for the next role");
  }
  for (const auto& [from, note] : lane.steps[step].said.notes)
    if (note.cut) lane.cut = step;
  lane.steps.erase(step);
  lane.finished = step;
  return std::nullopt;
}

/// `learning`: by the stages that learn; else by all others.
void GroupExchange::wait_closed(int64_t step, bool learning) {
  const Inbox& inbox = whole_.steps[step];
  const Said& said = learning ? inbox.learning : inbox.said;
  for (const Stopwatch waited; said.closed < (learning ? whole_.num_learning : whole_.num_senders);) {
    sort_in(whole_);
    end_.look();
    mailbox_.pause(waited.seconds(), "groups of a whole step");
  }
}

/// Adds what senders say to the groups of a step: the same in whatever order it came.
void GroupExchange::put_together(StepInput& input, Said said, int64_t step) {
  std::sort(said.annotations.begin(), said.annotations.end(), [](const Annotation& a, const Annotation& b) {
    return std::tie(a.data_position, a.sample, a.field) < std::tie(b.data_position, b.sample, b.field);
  });
  for (const Annotation& a : said.annotations) {
    const auto group =
        std::lower_bound(input.groups.begin(), input.groups.end(), a.data_position,
                         [](const Group& some, int64_t position) { return position_of(some) < position; });
    CHECK(group != input.groups.end() && position_of(*group) == a.data_position,
          "prompt {} is annotated and did not come in step {}", a.data_position, step);
    apply(a, group->samples.at(static_cast<size_t>(a.sample)));
  }
  for (const auto& [from, note] : said.notes) add(input.note, note);
  CHECK(std::ssize(input.groups) == input.note.num_groups && said.annotations.size() == said.num_annotations,
        "step {} has {} groups and {} annotations, {} and {} were sent", step, input.groups.size(),
        said.annotations.size(), input.note.num_groups, said.num_annotations);
}

const StepInput& GroupExchange::peek_made(int64_t step) {
  Inbox& inbox = whole_.steps[step];
  if (inbox.made) return *inbox.made;
  wait_closed(step, /*learning=*/false);
  StepInput& made = inbox.made.emplace();
  for (auto& [position, group] : inbox.by_position) made.groups.push_back(std::move(group));
  inbox.by_position.clear();
  put_together(made, std::move(inbox.said), step);
  for (size_t i = 0; i < made.groups.size(); ++i)
    for (Trajectory& t : made.groups[i].samples) t.group = static_cast<int32_t>(i);
  if (!unfinished_.contains(step)) {
    sort_by_position(inbox.unfinished);
    unfinished_[step] = std::move(inbox.unfinished);
  }
  return made;
}

const StepInput& GroupExchange::peek(int64_t step) {
  const StepInput& made = peek_made(step);
  Inbox& inbox = whole_.steps[step];
  if (whole_.num_learning == 0) return made;
  if (inbox.whole) return *inbox.whole;
  wait_closed(step, /*learning=*/true);
  put_together(inbox.whole.emplace(made), std::move(inbox.learning), step);
  return *inbox.whole;
}

void GroupExchange::finish(int64_t step) {
  stop_requested_ = peek(step).note.stop_requested;
  whole_.steps.erase(step);
  whole_.finished = step;
  unfinished_.erase(unfinished_.begin(), unfinished_.lower_bound(step));
}

const std::vector<Group>& GroupExchange::unfinished_after(int64_t step) {
  const auto found = unfinished_.find(step);
  CHECK(found != unfinished_.end(), "what step {} left unfinished is not known", step);
  return found->second;
}

}  // namespace temper
