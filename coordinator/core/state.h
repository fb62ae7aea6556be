#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "plan/holdings.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// A rank of one epoch of a job.
struct Seat {
  JobId job;
  Epoch epoch;
  int rank = 0;
  friend bool operator==(const Seat&, const Seat&) = default;
};

struct WorkerState {
  WorkerId id;
  Incarnation incarnation;
  std::string device;
  std::string host;
  std::string shared_memory_domain;
  // Where links of its shared-memory domain come, and those of others; the latter may be "".
  std::string data_address;
  std::string network_address;
  std::string numerics_fingerprint;
  // Absolute; "" when the worker did not say.
  std::string output_root;
  // Of its device, or of its host where that has none of its own; 0: it did not say.
  int64_t memory_bytes = 0;
  // Without an id: it has none that forms groups.
  v1::Gpu gpu;
  bool alive = false;
  int64_t lost_unix_ms = 0;
  // Held from Assign until the rank has finished or was released, so also for a while after the
  // job has ended. A worker without a seat is idle.
  std::optional<Seat> seat;
  // It is to leave: it takes no new seat and holds no copies; and why.
  bool draining = false;
  std::string drain_reason;
  // Nothing depends on it any more, and it was told to end.
  bool dismissed = false;
  // Earlier lives of which a later one is known: they never come back. The newest last, bounded.
  std::vector<Incarnation> retired;
};

// The numbers of this and the other enumerations here are stored (snapshot.h).
enum class RankPhase { kForming, kRunning, kFinished, kFailed, kLost, kReleased };

struct RankState {
  WorkerId worker;
  Incarnation incarnation;
  RankPhase phase = RankPhase::kForming;
  // How it ended (F54).
  std::string reason;
  // It writes nothing of the epoch any more: it has answered with what it holds, or it is lost.
  bool left = false;
  // Who stores its shard beside its own process.
  std::vector<WorkerId> holders;
};

// A worker that stores copies for ranks of an epoch and is none of them.
struct CopyHolder {
  WorkerId worker;
  Incarnation incarnation;
  // As of a rank.
  bool left = false;
  // The epoch only reads from it while it forms.
  bool source = false;
  // The epoch needs nothing of it: it came back after the epoch was planned, and is asked what it
  // holds when that one has not restored either.
  bool returned = false;
};

// What a process said that it holds of a job, when it last stopped to write.
struct Answer {
  Incarnation incarnation;
  std::vector<v1::Holding> holdings;
};

// A rank that lost the link to a peer; or, with peer -1, to the process that was to store its shard
// or to give it a part of the version.
struct Complaint {
  int rank = 0;
  int peer = 0;
  WorkerId holder;
};

// Of two workers, of which the first does not reach the other.
using Link = std::pair<WorkerId, WorkerId>;

struct SavedCheckpoint {
  int64_t step = 0;
  std::string path;
};

// A process that holds a part of the version that an epoch starts from: the shard of rank `owner`
// of the version's epoch.
struct PartHolder {
  int owner = 0;
  WorkerId worker;
  Incarnation incarnation;
};

// Where an epoch's training goes on: after a version, a checkpoint, or from the start.
struct RestorePoint {
  std::optional<Version> version;
  // By part of the version.
  std::map<int, std::vector<PartHolder>> parts;
  // "": none.
  std::string checkpoint;
  int64_t step = 0;
};

// The moments of a re-formation, in unix milliseconds; 0 while they have not come.
struct EpochTimes {
  // When what ended the epoch before happened, when it was known, and when all had answered.
  int64_t struck = 0;
  int64_t ended = 0;
  int64_t answered = 0;
  int64_t assigned = 0;
  int64_t running = 0;
  // From Assign to formed groups, of the rank that was ready last.
  int64_t forming = 0;
};

// Kinds of causes that end an epoch: a process that ended, or fell silent; a peer that somebody
// lost; a rank's own failure; a hang; a world that did not form; a rank that left; a plan.
enum class EndKind { kNone, kDeath, kSilence, kLink, kFailure, kHang, kFormation, kLeft, kPlan };

// Why a job is not placed.
enum class Waiting { kNone, kWorkers, kIdleWorkers, kEarlierJob, kSilentWorkers };

// Of a job whose epoch has ended: what it lets time pass for, and since when.
struct Patience {
  // Silent workers, which may come back with what no other holds, before training goes on without
  // it; to save its state; the silent ones before that.
  enum class For { kNothing, kSilent, kSave, kSilentBeforeSave };
  For what = For::kNothing;
  int64_t since_unix_ms = 0;
  // So long; -1: as long as the failure detection says (runtime/controller.h).
  int64_t delay_ms = -1;
  // It had enough for the one, and for the other, since the epoch ended.
  bool silent_over = false;
  bool save_due = false;
};

// A layout that a job of strategy auto may have.
struct TriedCandidate {
  v1::Candidate candidate;
  // Trials of it that began, and why there are no more; "": there may be.
  int64_t attempts = 0;
  std::string failure;
};

// Of a job of strategy auto: how it is being laid out, or was (core/trials.h).
struct Trials {
  // What the job's epochs are for. Of other jobs kNone.
  enum class Phase { kNone, kProbe, kTrial, kDecided };
  Phase phase = Phase::kNone;
  // The keys as the job's file has them; the job's specification has those of the present epoch.
  v1::ParallelSpec asked;
  int64_t asked_micro_batch = 0;
  // Measurements that have begun, and the epoch of the last one.
  int64_t number = 0;
  Epoch last_epoch;
  // Ranks that the candidates are for.
  int64_t world = 0;
  // Of each figure the slowest rank's; absent until there was a probe.
  std::optional<v1::TrialReport> probe;
  int64_t probe_attempts = 0;
  // Best first.
  std::vector<TriedCandidate> candidates;
  // The one that is tried; -1: none.
  int64_t current = -1;
  // Of the present measurement, by rank.
  std::map<int, v1::TrialReport> reports;
  std::optional<v1::StrategyDecision> decision;
  // How the versions of epochs are cut, of the last epochs that trained.
  std::map<int64_t, v1::ParallelSpec> layouts;
};

struct JobRecord {
  JobId id;
  std::string request_id;
  v1::JobSpec spec;
  std::string secret;
  // Position among all submissions.
  int64_t order = 0;
  v1::JobState state = v1::JOB_STATE_QUEUED;
  std::string reason;
  Waiting waiting = Waiting::kNone;
  // The last committed step that is known.
  int64_t step = 0;
  int64_t submitted_unix_ms = 0;
  int64_t ended_unix_ms = 0;
  std::string weights_path;

  // ---- The current epoch. 0 until the first placement.
  Epoch epoch;
  // By rank.
  std::vector<RankState> ranks;
  std::vector<CopyHolder> holders;
  RestorePoint restore;
  // What it goes on after is certain. Of a checkpoint, or the start, its ranks say so when they are
  // ready: they may have found a newer checkpoint than was known, or the planned one damaged.
  bool start_known = true;
  // Nothing is trained in it: its state is saved as a checkpoint.
  bool save_and_stop = false;
  // A step of it was committed, or its checkpoint was saved.
  bool progressed = false;
  // The feed was told of it.
  bool announced = false;
  EpochTimes times;

  // ---- Its end.
  // The ranks were told to stop together, as planned; to stop at once; the holders were asked.
  bool paused = false;
  bool aborted = false;
  bool holders_asked = false;
  EndKind end_kind = EndKind::kNone;
  // Why it ended; and whether that is only what somebody suspects, so that a better cause may come.
  std::string cause;
  bool suspicion = false;
  std::vector<Complaint> complaints;
  Patience patience;
  // Processes in which the rarest shard is, as the feed was last told while the job waits; -1: it
  // was not.
  int64_t told_copies = -1;

  // ---- What is known across epochs.
  // Of live workers. Emptied when a new epoch has restored: what is older is not needed any more.
  std::map<WorkerId, Answer> answers;
  // The newest epoch that all its ranks said to have restored; and of those after it the step that
  // each went on after: one that has trained further had restored, too (RestoredEpoch).
  Epoch restored;
  std::map<int64_t, int64_t> starts;
  // Epochs in a row that ended unplanned and without progress: without a step that had not been
  // committed before the last rollback, or a job that dies at the same step again and again would
  // never end.
  int fruitless = 0;
  // Why those before the last of them ended.
  std::vector<std::string> past_causes;
  int64_t high_step = 0;
  // Epochs in a row that were to save the job's state and did not.
  int failed_saves = 0;
  // Ranks of the last epoch that ran, or of the first that was formed.
  int64_t usual_world = 0;
  std::optional<SavedCheckpoint> checkpoint;
  // Workers with a broken link, which take no part any more.
  std::set<WorkerId> excluded;
  // Links to processes that store or give shards: others are chosen.
  std::set<Link> broken;
  // The newest epoch that workers spoke of and this log does not know, which is older than they
  // are: the next one comes after it.
  Epoch told_epoch;
  // Who fell silent with something of the job since its last epoch restored, and was not heard yet.
  std::map<WorkerId, Incarnation> silent;
  Trials trials;
};

// All that the coordinator knows for certain: a pure function of the durable events.
struct State {
  std::map<JobId, JobRecord> jobs;
  // Request id of a submission → the job it made (F53).
  std::map<std::string, JobId> jobs_by_request;
  // QUEUED jobs in the order in which they are placed: priority, then submission.
  std::vector<JobId> queue;
  // Jobs that have ended and are not forgotten, in the order of their ends.
  std::deque<JobId> ended;
  std::map<WorkerId, WorkerState> workers;
  int64_t submissions = 0;
  // Of the last applied event.
  int64_t sequence = 0;
};

bool IsTerminal(v1::JobState state);
// FORMING or RUNNING.
bool HoldsWorkers(v1::JobState state);
// FORMING, RUNNING or RECOVERING: it has an epoch, and has not ended.
bool IsUnderway(v1::JobState state);
// The current epoch's ranks work, or may yet: they form, run, or stop as planned.
bool IsAtWork(const JobRecord& job);
// Every rank and holder of the current epoch has answered, or is lost.
bool AllLeft(const JobRecord& job);
// The worker is a rank of the job's current epoch, or holds copies in it.
bool IsNamed(const JobRecord& job, const WorkerState& worker);
// Who has the same can map its memory: the domain's name, or one of its own for who names none.
std::string MemoryDomainOf(const WorkerState& worker);
// Both can map memory of one another.
bool ShareMemory(const WorkerState& a, const WorkerState& b);
// `from` can open links to `to`.
bool Reaches(const WorkerState& from, const WorkerState& to);
// Where it does.
const std::string& AddressFor(const WorkerState& from, const WorkerState& to);
// A link between the two broke, in either direction.
bool IsBroken(const JobRecord& job, const WorkerId& a, const WorkerId& b);
// It is of strategy auto, and not laid out yet: its epochs measure.
bool IsUndecided(const JobRecord& job);
// The first epoch that trains, if there is one.
Epoch FirstEpochOf(const JobRecord& job);
// How the versions that an epoch left are cut; nullptr: that is not known any more.
const v1::ParallelSpec* LayoutOf(const JobRecord& job, int64_t epoch);
// The process was alive when it was last heard of.
bool IsAlive(const State& state, const WorkerId& id, Incarnation incarnation);

// nullptr when there is none.
const JobRecord* FindJob(const State& state, const JobId& id);
const WorkerState* FindWorker(const State& state, const WorkerId& id);

// The id that the next submission of a job called `name` gets: the name, reduced to lower-case
// letters, digits and dashes, and the number of the submission, which makes it unique: "tiny-7".
JobId NextJobId(const State& state, const std::string& name);

// Everything in `state`, as snapshot.h stores it, as readable text; equal states have equal text.
std::string Describe(const State& state);

}  // namespace sherd
