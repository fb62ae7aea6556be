#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "coordinator/runtime/fleet.h"
#include "coordinator/runtime/journal.h"
#include "coordinator/runtime/reply.h"
#include "coordinator/runtime/timer_queue.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// Random bytes, for secrets.
using RandomSource = std::function<std::string(int bytes)>;

// Part of a job's feed.
struct FeedChunk {
  // In order, without a gap; empty when the wait was over first.
  std::vector<v1::JobEvent> entries;
  // The job has ended and these are the last entries.
  bool ended = false;
};

// Users' requests. Errors are those of sherd/v1/job_service.proto. One thread.
class JobDesk {
 public:
  using Append = std::function<void(v1::DurableEvent)>;

  JobDesk(absl::Duration inspection_deadline, const Clock& clock, Journal& journal,
          TimerQueue& timers, Fleet& fleet, RandomSource random, Append append);
  JobDesk(const JobDesk&) = delete;

  // `request.spec` is normalised and valid; without a checkpoint.dir the job's id becomes it. A
  // worker, if one is connected, looks at the job's files first: kInvalidArgument with its
  // sentence; kResourceExhausted when no worker looks in time, or too many jobs are queued;
  // kFailedPrecondition when a job that has not ended writes to its checkpoint.dir, in it or
  // around it, or when model.from is to tell the shape and no worker can read it.
  void Submit(const v1::SubmitRequest& request, Reply<v1::SubmitResponse> reply);
  void Cancel(const JobId& id, Reply<v1::CancelResponse> reply);
  void GetJob(const JobId& id, Reply<v1::GetJobResponse> reply);
  // The newest jobs, or those from `next` of an earlier answer on.
  void ListJobs(int64_t next, Reply<v1::ListJobsResponse> reply);
  void ListWorkers(Reply<v1::ListWorkersResponse> reply);
  // Has a worker leave. Idempotent.
  void Drain(const WorkerId& id, Reply<v1::DrainResponse> reply);
  // The feed after `after_sequence`, at most `limit` entries; waits up to `patience` for the first.
  void ReadFeed(const JobId& id, int64_t after_sequence, int64_t limit, absl::Duration patience,
                Reply<FeedChunk> reply);

  // News of the workers that were asked to look at files.
  void OnInspected(const WorkerId& worker, const v1::DataInspection& inspection);
  void OnDisconnected(const WorkerId& worker);
  // After a commit: serves readers that wait for entries.
  void ServeReaders();
  // Drops what waits.
  void Stop();

 private:
  // A submission whose files a worker looks at. Retries of it join.
  struct Inspection {
    v1::SubmitRequest request;
    std::vector<Reply<v1::SubmitResponse>> replies;
    // Connected still; the first answer of one of them counts.
    std::vector<WorkerId> asked;
  };
  struct Reader {
    JobId job;
    int64_t after_sequence = 0;
    int64_t limit = 0;
    Reply<FeedChunk> reply;
  };

  // Asks a connected worker that was not asked yet, if there is one.
  void AskNext(uint64_t number);
  void AskWorker(uint64_t number, const Inspection& inspection, const WorkerId& worker);
  void Accept(const Inspection& inspection);
  void Refuse(const Inspection& inspection, const absl::Status& status);
  // False when there is nothing to read yet.
  bool Serve(const Reader& reader);
  template <typename T>
  void Answer(const Reply<T>& reply, absl::StatusOr<T> result);

  const absl::Duration inspection_deadline_;
  const Clock& clock_;
  Journal& journal_;
  TimerQueue& timers_;
  Fleet& fleet_;
  const RandomSource random_;
  const Append append_;
  uint64_t last_inspection_;
  std::map<uint64_t, Inspection> inspections_;
  uint64_t last_reader_ = 0;
  std::map<uint64_t, Reader> readers_;
};

}  // namespace sherd
