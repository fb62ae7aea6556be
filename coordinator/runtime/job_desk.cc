#include "coordinator/runtime/job_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/counted.h"
#include "common/printable_text.h"
#include "coordinator/core/directories.h"
#include "coordinator/core/reducer.h"
#include "coordinator/runtime/invalid_fields.h"
#include "coordinator/runtime/take_model.h"
#include "coordinator/runtime/views.h"
#include "plan/job_spec.h"
#include "plan/model_folder.h"

namespace sherd {
namespace {

constexpr int kSecretBytes = 32;
// A worker that was asked is waited for this long alone.
constexpr absl::Duration kMuteTime = absl::Seconds(2);
// Of one answer; well below what a message may have.
constexpr int64_t kMostListBytes = 1 << 20;
// What a worker says of a job's files.
constexpr size_t kMostSaidBytes = 4096;
// Each change of the queue or of the workers looks at every queued job.
constexpr size_t kMostQueued = 10'000;

absl::Status NoSuchJob(const State& state, const JobId& id) {
  // The end of an id is the number of its submission, which no other job has.
  const size_t dash = id.value().rfind('-');
  int64_t number = 0;
  const bool numbered = dash != std::string::npos &&
                        absl::SimpleAtoi(absl::string_view(id.value()).substr(dash + 1), &number);
  const bool past = numbered && number >= 1 && number <= state.submissions &&
                    std::none_of(state.jobs.begin(), state.jobs.end(),
                                 [number](const auto& job) { return job.second.order == number; });
  if (past) {
    return absl::NotFoundError(
        absl::StrCat("job ", id.value(), " is forgotten: it has ended, and only the last ",
                     kEndedJobsKept, " jobs that ended are kept; what it wrote is where it was"));
  }
  return absl::NotFoundError(
      absl::StrCat("no job has the id \"", id.value(), "\"; `sherd list` shows those there are"));
}

// The specification of job `id`, whose own id is the default directory: unique as the id.
v1::JobSpec WithDirectory(v1::JobSpec spec, const JobId& id) {
  if (spec.checkpoint().dir().empty()) spec.mutable_checkpoint()->set_dir(id.value());
  return spec;
}

// Two jobs that write to one directory destroy each other's weights. `spec` as submitted.
absl::Status CheckDirectory(const State& state, const v1::JobSpec& spec) {
  const JobId id = NextJobId(state, spec.name());
  const v1::JobSpec complete = WithDirectory(spec, id);
  const JobRecord* job = FindJobInDirectory(
      state, id, complete, [](v1::JobState job_state) { return !IsTerminal(job_state); });
  if (job == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", job->id.value(), " is ", std::string(NameOf(job->state)),
      " and writes to checkpoint.dir \"", job->spec.checkpoint().dir(), "\", this one would to \"",
      complete.checkpoint().dir(), "\"; give this job another checkpoint.dir, or wait until ",
      job->id.value(), " has ended"));
}

// A number that no earlier life of the coordinator is likely to have used.
uint64_t RandomNumber(const RandomSource& random) {
  uint64_t number = 0;
  for (const char byte : random(sizeof(number))) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

// What a worker says of a job's files: "FIELD: sentence", where the field is one of those that
// files decide about.
absl::Status BadFiles(absl::string_view said) {
  v1::InvalidFields fields;
  v1::InvalidField& bad = *fields.add_fields();
  bad.set_field("data");
  for (const char* field :
       {"model.from", "data.train", "data.eval", "data.validation_split", "data.tokenizer",
        "train.seq_len", "checkpoint.dir", "checkpoint.resume"}) {
    absl::string_view sentence = said;
    if (!absl::ConsumePrefix(&sentence, field) || !absl::ConsumePrefix(&sentence, ": ")) continue;
    bad.set_field(field);
    said = sentence;
  }
  bad.set_description(std::string(said));
  return InvalidFieldsError(fields);
}

}  // namespace

JobDesk::JobDesk(absl::Duration inspection_deadline, const Clock& clock, Journal& journal,
                 TimerQueue& timers, Fleet& fleet, RandomSource random, Append append)
    : inspection_deadline_(inspection_deadline),
      clock_(clock),
      journal_(journal),
      timers_(timers),
      fleet_(fleet),
      random_(std::move(random)),
      append_(std::move(append)),
      last_inspection_(RandomNumber(random_)) {}

template <typename T>
void JobDesk::Answer(const Reply<T>& reply, absl::StatusOr<T> result) {
  journal_.AfterCommit([reply, result = std::move(result)]() mutable { reply(std::move(result)); });
}

void JobDesk::Submit(const v1::SubmitRequest& request, Reply<v1::SubmitResponse> reply) {
  const State& state = journal_.state();
  if (const auto seen = state.jobs_by_request.find(request.request_id());
      seen != state.jobs_by_request.end()) {
    const JobRecord& job = *FindJob(state, seen->second);
    v1::SubmitResponse response;
    *response.mutable_job() = ViewJob(job, journal_.feed(), JobDetail::kFull);
    return Answer<v1::SubmitResponse>(reply, std::move(response));
  }
  for (auto& [number, inspection] : inspections_) {
    if (inspection.request.request_id() != request.request_id()) continue;
    inspection.replies.push_back(std::move(reply));
    return;
  }
  if (state.queue.size() + inspections_.size() >= kMostQueued) {
    return Answer<v1::SubmitResponse>(
        reply, absl::ResourceExhaustedError(absl::StrCat(
                   kMostQueued, " jobs are queued already; submit again when some have started")));
  }
  if (absl::Status status = CheckDirectory(state, request.spec()); !status.ok()) {
    return Answer<v1::SubmitResponse>(reply, std::move(status));
  }
  Inspection inspection{request, {std::move(reply)}, {}};
  if (fleet_.Connected().empty()) return Accept(inspection);
  const uint64_t number = ++last_inspection_;
  inspections_[number] = std::move(inspection);
  AskNext(number);
  timers_.At(clock_.Now() + inspection_deadline_, [this, number] {
    const auto found = inspections_.find(number);
    if (found == inspections_.end()) return;
    const int64_t asked = static_cast<int64_t>(found->second.asked.size());
    Refuse(found->second,
           absl::ResourceExhaustedError(absl::StrCat(
               "the workers are too busy to look at the job's files: ", Counted(asked, "worker"),
               " did not answer within ", absl::FormatDuration(inspection_deadline_),
               "; nothing was started, submit again in a while")));
    inspections_.erase(found);
  });
}

void JobDesk::AskNext(uint64_t number) {
  const auto found = inspections_.find(number);
  if (found == inspections_.end()) return;
  std::vector<WorkerId>& asked = found->second.asked;
  for (const WorkerId& worker : fleet_.Connected()) {
    if (std::count(asked.begin(), asked.end(), worker) > 0) continue;
    asked.push_back(worker);
    AskWorker(number, found->second, worker);
    // A mute worker must not stand in the way of every submission.
    timers_.At(clock_.Now() + kMuteTime, [this, number] { AskNext(number); });
    return;
  }
}

void JobDesk::AskWorker(uint64_t number, const Inspection& inspection, const WorkerId& worker) {
  const v1::JobSpec spec = WithDirectory(
      inspection.request.spec(), NextJobId(journal_.state(), inspection.request.spec().name()));
  v1::SessionResponse message;
  v1::InspectData* question = message.mutable_inspect_data();
  question->set_request_id(number);
  *question->mutable_data() = spec.data();
  question->set_seq_len(spec.train().seq_len());
  question->set_vocab(spec.model().vocab());
  *question->mutable_checkpoint() = spec.checkpoint();
  question->set_model_from(spec.model().from());
  fleet_.Send(worker, FindWorker(journal_.state(), worker)->incarnation, std::move(message));
}

void JobDesk::OnInspected(const WorkerId& worker, const v1::DataInspection& answer) {
  const auto found = inspections_.find(answer.request_id());
  if (found == inspections_.end()) return;
  const std::vector<WorkerId>& asked = found->second.asked;
  if (std::count(asked.begin(), asked.end(), worker) == 0) return;
  Inspection inspection = std::move(found->second);
  inspections_.erase(found);
  if (!answer.error().empty()) {
    return Refuse(inspection, BadFiles(PrintableText(answer.error(), kMostSaidBytes)));
  }
  const absl::Status taken = TakeModel(answer, *inspection.request.mutable_spec());
  if (!taken.ok()) return Refuse(inspection, taken);
  Accept(inspection);
}

void JobDesk::OnDisconnected(const WorkerId& worker) {
  for (auto entry = inspections_.begin(); entry != inspections_.end();) {
    auto& [number, inspection] = *entry;
    const bool deserted = std::erase(inspection.asked, worker) > 0 && inspection.asked.empty();
    if (deserted) AskNext(number);
    if (!deserted || !inspection.asked.empty()) {
      ++entry;
      continue;
    }
    // As without any worker: the ones that come look at the files when they get the job.
    const Inspection accepted = std::move(inspection);
    entry = inspections_.erase(entry);
    Accept(accepted);
  }
}

void JobDesk::Accept(const Inspection& inspection) {
  if (AwaitsShape(inspection.request.spec().model())) {
    return Refuse(inspection, absl::FailedPreconditionError(
                                  "model.from: a worker must read the model's shape in the folder, "
                                  "and none is connected; start workers, then submit again"));
  }
  // Another job may have taken the directory during the inspection.
  if (absl::Status status = CheckDirectory(journal_.state(), inspection.request.spec());
      !status.ok()) {
    return Refuse(inspection, status);
  }
  const JobId id = NextJobId(journal_.state(), inspection.request.spec().name());
  v1::DurableEvent event;
  v1::JobSubmitted* submitted = event.mutable_job_submitted();
  submitted->set_job_id(id.value());
  submitted->set_request_id(inspection.request.request_id());
  *submitted->mutable_spec() = WithDirectory(inspection.request.spec(), id);
  submitted->set_secret(random_(kSecretBytes));
  append_(std::move(event));
  v1::SubmitResponse response;
  *response.mutable_job() =
      ViewJob(*FindJob(journal_.state(), id), journal_.feed(), JobDetail::kFull);
  response.set_created(true);
  for (const Reply<v1::SubmitResponse>& reply : inspection.replies) {
    Answer<v1::SubmitResponse>(reply, response);
    // Whoever joined asked again for the same.
    response.set_created(false);
  }
}

void JobDesk::Refuse(const Inspection& inspection, const absl::Status& status) {
  for (const Reply<v1::SubmitResponse>& reply : inspection.replies) {
    Answer<v1::SubmitResponse>(reply, status);
  }
}

void JobDesk::Cancel(const JobId& id, Reply<v1::CancelResponse> reply) {
  const JobRecord* job = FindJob(journal_.state(), id);
  if (job == nullptr) return Answer<v1::CancelResponse>(reply, NoSuchJob(journal_.state(), id));
  if (IsTerminal(job->state) && job->state != v1::JOB_STATE_CANCELLED) {
    return Answer<v1::CancelResponse>(
        reply, absl::FailedPreconditionError(
                   absl::StrCat("job ", id.value(), " has already ended as ",
                                std::string(NameOf(job->state)), "; there is nothing to cancel")));
  }
  if (!IsTerminal(job->state)) {
    v1::DurableEvent event;
    event.mutable_cancel_requested()->set_job_id(id.value());
    append_(std::move(event));
  }
  v1::CancelResponse response;
  *response.mutable_job() = ViewJob(*job, journal_.feed(), JobDetail::kFull);
  Answer<v1::CancelResponse>(reply, std::move(response));
}

void JobDesk::GetJob(const JobId& id, Reply<v1::GetJobResponse> reply) {
  const JobRecord* job = FindJob(journal_.state(), id);
  if (job == nullptr) return Answer<v1::GetJobResponse>(reply, NoSuchJob(journal_.state(), id));
  v1::GetJobResponse response;
  *response.mutable_job() = ViewJob(*job, journal_.feed(), JobDetail::kFull);
  response.mutable_job()->set_last_event(journal_.feed().LastSequence(id));
  Answer<v1::GetJobResponse>(reply, std::move(response));
}

void JobDesk::ListJobs(int64_t next, Reply<v1::ListJobsResponse> reply) {
  std::map<int64_t, const JobRecord*, std::greater<>> newest_first;
  for (const auto& [id, job] : journal_.state().jobs) newest_first[job.order] = &job;
  v1::ListJobsResponse response;
  int64_t bytes = 0;
  for (auto entry = next > 0 ? newest_first.lower_bound(next) : newest_first.begin();
       entry != newest_first.end(); ++entry) {
    const JobRecord& job = *entry->second;
    v1::Job view = ViewJob(job, journal_.feed(), JobDetail::kSummary);
    bytes += static_cast<int64_t>(view.ByteSizeLong());
    if (bytes > kMostListBytes && !response.jobs().empty()) {
      response.set_next(entry->first);
      break;
    }
    *response.add_jobs() = std::move(view);
  }
  Answer<v1::ListJobsResponse>(reply, std::move(response));
}

void JobDesk::ListWorkers(Reply<v1::ListWorkersResponse> reply) {
  v1::ListWorkersResponse response;
  for (const auto& [id, worker] : journal_.state().workers) {
    *response.add_workers() = ViewWorker(worker);
  }
  Answer<v1::ListWorkersResponse>(reply, std::move(response));
}

void JobDesk::Drain(const WorkerId& id, Reply<v1::DrainResponse> reply) {
  const WorkerState* worker = FindWorker(journal_.state(), id);
  if (worker == nullptr) {
    return Answer<v1::DrainResponse>(
        reply, absl::NotFoundError(absl::StrCat("no worker has the id \"", id.value(),
                                                "\"; `sherd workers` shows those there are")));
  }
  if (!worker->alive) {
    return Answer<v1::DrainResponse>(
        reply, absl::FailedPreconditionError(absl::StrCat(
                   "worker ", id.value(), " is lost already; there is nothing to drain")));
  }
  fleet_.Drain(id, "a user drains it");
  v1::DrainResponse response;
  *response.mutable_worker() = ViewWorker(*worker);
  Answer<v1::DrainResponse>(reply, std::move(response));
}

void JobDesk::ReadFeed(const JobId& id, int64_t after_sequence, int64_t limit,
                       absl::Duration patience, Reply<FeedChunk> reply) {
  if (FindJob(journal_.state(), id) == nullptr)
    return Answer<FeedChunk>(reply, NoSuchJob(journal_.state(), id));
  const uint64_t number = ++last_reader_;
  readers_[number] = {id, after_sequence, limit, std::move(reply)};
  timers_.At(clock_.Now() + patience, [this, number] {
    const auto found = readers_.find(number);
    if (found == readers_.end()) return;
    found->second.reply(FeedChunk{});
    readers_.erase(found);
  });
}

void JobDesk::ServeReaders() {
  for (auto entry = readers_.begin(); entry != readers_.end();) {
    entry = Serve(entry->second) ? readers_.erase(entry) : std::next(entry);
  }
}

bool JobDesk::Serve(const Reader& reader) {
  const JobRecord* job = FindJob(journal_.state(), reader.job);
  if (job == nullptr) {
    reader.reply(NoSuchJob(journal_.state(), reader.job));
    return true;
  }
  const bool terminal = IsTerminal(job->state);
  const int64_t last = journal_.feed().LastSequence(reader.job);
  if (last <= reader.after_sequence && !terminal) return false;
  absl::StatusOr<std::vector<v1::JobEvent>> entries =
      journal_.ReadFeed(reader.job, reader.after_sequence, reader.limit);
  if (!entries.ok()) {
    reader.reply(entries.status());
    return true;
  }
  FeedChunk chunk{*std::move(entries), false};
  const int64_t reached =
      chunk.entries.empty() ? reader.after_sequence : chunk.entries.back().sequence();
  chunk.ended = terminal && reached >= last;
  reader.reply(std::move(chunk));
  return true;
}

void JobDesk::Stop() {
  inspections_.clear();
  readers_.clear();
}

}  // namespace sherd
