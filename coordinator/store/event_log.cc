#include "coordinator/store/event_log.h"

#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "coordinator/store/lock_file.h"
#include "coordinator/store/sqlite.h"

namespace sherd {
namespace {

constexpr char kMemory[] = ":memory:";
// 2: events may begin after a snapshot.
constexpr int64_t kSchemaVersion = 2;

// `kind` is the number of the feed entry's field in v1.JobEvent.
constexpr char kSchema[] = R"sql(
  CREATE TABLE IF NOT EXISTS events (
    sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL);
  CREATE TABLE IF NOT EXISTS snapshots (
    sequence INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, payload BLOB NOT NULL);
  CREATE TABLE IF NOT EXISTS feed (
    job TEXT NOT NULL, sequence INTEGER NOT NULL, kind INTEGER NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (job, sequence)) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS acknowledgements (
    worker TEXT PRIMARY KEY, incarnation INTEGER NOT NULL, sequence INTEGER NOT NULL)
    WITHOUT ROWID;
)sql";

// In the transaction that brings a snapshot. The events go that the older of two stands for: the
// newer one has never been read.
constexpr char kDropOldSnapshots[] = R"sql(
  DELETE FROM snapshots WHERE sequence NOT IN (
    SELECT sequence FROM snapshots ORDER BY sequence DESC LIMIT 2))sql";
constexpr char kDropOldEvents[] = R"sql(
  DELETE FROM events WHERE sequence <= (
    SELECT MIN(sequence) FROM snapshots HAVING COUNT(*) = 2))sql";

// Of what stands for the events up to `sequence`.
int64_t ChecksumOf(int64_t sequence, const std::string& payload) {
  return static_cast<int64_t>(
      XXH3_64bits_withSeed(payload.data(), payload.size(), static_cast<XXH64_hash_t>(sequence)));
}

class SqliteEventLog final : public EventLog {
 public:
  absl::Status Init(const std::string& directory);
  absl::Status Commit(const LogBatch& batch) override;
  absl::StatusOr<std::optional<v1::StoredState>> ReadSnapshot() override;
  absl::Status Replay(int64_t after_sequence,
                      const std::function<void(const v1::DurableEvent&)>& visit) override;
  absl::Status Compact(const v1::StoredState& state) override;
  absl::StatusOr<bool> DropFeed(const JobId& job, int64_t most) override;
  absl::StatusOr<std::vector<FeedSummary>> SummarizeFeeds() override;
  absl::StatusOr<std::vector<Acknowledgement>> Acknowledgements() override;
  absl::StatusOr<std::vector<v1::JobEvent>> ReadFeed(const JobId& job, int64_t after_sequence,
                                                     int64_t limit) override;

 private:
  absl::Status PrepareDirectory(const std::string& directory);
  absl::Status CheckSchema();
  absl::Status PrepareStatements();
  absl::Status Insert(const LogBatch& batch);
  absl::Status InsertSnapshot(const v1::StoredState& state);
  absl::Status DropAcknowledgements(const v1::StoredState& state);
  // Does `change` whole or not at all.
  absl::Status InTransaction(const std::function<absl::Status()>& change);
  // Whether the next commits are synced to the disk before they return.
  absl::Status Synchronize(bool every_commit);
  absl::Status ReadLast(const JobId& job, v1::JobEvent::EventCase kind, v1::JobEvent& entry);
  absl::Status Damaged(absl::string_view what) const;

  std::string path_;
  std::unique_ptr<LockFile> lock_;
  // Declared before the statements, which must go first.
  std::unique_ptr<Database> database_;
  std::optional<bool> synchronizes_;
  // Sequences of snapshots that could not be read.
  std::set<int64_t> damaged_;
  std::unique_ptr<Statement> insert_event_;
  std::unique_ptr<Statement> insert_feed_;
  std::unique_ptr<Statement> insert_acknowledgement_;
  std::unique_ptr<Statement> read_feed_;
  std::unique_ptr<Statement> read_last_;
};

absl::Status SqliteEventLog::Damaged(absl::string_view what) const {
  return absl::DataLossError(
      absl::StrCat("the event log ", path_, " is damaged: ", what,
                   "; put a backup in its place, or move it away to start without the jobs that it "
                   "knows"));
}

absl::Status SqliteEventLog::PrepareDirectory(const std::string& directory) {
  if (directory == kMemory) {
    path_ = kMemory;
    return absl::OkStatus();
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat("cannot make the data directory ", directory,
                                                    ": ", error.message(),
                                                    "; give another --data-dir"));
  }
  SHERD_ASSIGN_OR_RETURN(lock_, LockFile::Acquire(directory + "/coordinator.lock"));
  path_ = directory + "/events.db";
  return absl::OkStatus();
}

absl::Status SqliteEventLog::CheckSchema() {
  int64_t version = 0;
  {
    SHERD_ASSIGN_OR_RETURN(auto check, database_->Prepare("PRAGMA quick_check(1)"));
    SHERD_ASSIGN_OR_RETURN(const bool row, check->Step());
    if (!row || check->Bytes(0) != "ok") return Damaged(row ? check->Bytes(0) : "no answer");
    SHERD_ASSIGN_OR_RETURN(auto query, database_->Prepare("PRAGMA user_version"));
    SHERD_ASSIGN_OR_RETURN([[maybe_unused]] const bool any, query->Step());
    version = query->Int(0);
  }
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the event log ", path_, " was written by a newer version of Sherd (format ",
                     version, ", this one knows ", kSchemaVersion, "); start that version"));
  }
  SHERD_RETURN_IF_ERROR(database_->Execute(kSchema));
  return database_->Execute(absl::StrCat("PRAGMA user_version = ", kSchemaVersion));
}

absl::Status SqliteEventLog::PrepareStatements() {
  SHERD_ASSIGN_OR_RETURN(insert_event_, database_->Prepare("INSERT INTO events VALUES (?1, ?2)"));
  SHERD_ASSIGN_OR_RETURN(insert_feed_,
                         database_->Prepare("INSERT INTO feed VALUES (?1, ?2, ?3, ?4)"));
  SHERD_ASSIGN_OR_RETURN(
      insert_acknowledgement_,
      database_->Prepare("INSERT OR REPLACE INTO acknowledgements VALUES (?1, ?2, ?3)"));
  SHERD_ASSIGN_OR_RETURN(
      read_feed_, database_->Prepare("SELECT payload FROM feed WHERE job = ?1 AND sequence > ?2 "
                                     "ORDER BY sequence LIMIT ?3"));
  SHERD_ASSIGN_OR_RETURN(read_last_,
                         database_->Prepare("SELECT payload FROM feed WHERE job = ?1 AND kind = ?2 "
                                            "ORDER BY sequence DESC LIMIT 1"));
  return absl::OkStatus();
}

absl::Status SqliteEventLog::Init(const std::string& directory) {
  SHERD_RETURN_IF_ERROR(PrepareDirectory(directory));
  SHERD_ASSIGN_OR_RETURN(database_, Database::Open(path_));
  SHERD_RETURN_IF_ERROR(database_->Execute("PRAGMA locking_mode = EXCLUSIVE"));
  {
    SHERD_ASSIGN_OR_RETURN(auto journal, database_->Prepare("PRAGMA journal_mode = WAL"));
    SHERD_RETURN_IF_ERROR(journal->Step().status());
  }
  SHERD_RETURN_IF_ERROR(CheckSchema());
  return PrepareStatements();
}

absl::Status SqliteEventLog::Insert(const LogBatch& batch) {
  for (const v1::DurableEvent& event : batch.events) {
    insert_event_->BindInt(1, event.sequence());
    insert_event_->BindBlob(2, event.SerializeAsString());
    SHERD_RETURN_IF_ERROR(insert_event_->Run());
  }
  for (const v1::JobEvent& entry : batch.feed) {
    insert_feed_->BindText(1, entry.job_id());
    insert_feed_->BindInt(2, entry.sequence());
    insert_feed_->BindInt(3, entry.event_case());
    insert_feed_->BindBlob(4, entry.SerializeAsString());
    SHERD_RETURN_IF_ERROR(insert_feed_->Run());
  }
  for (const Acknowledgement& acknowledgement : batch.acknowledgements) {
    insert_acknowledgement_->BindText(1, acknowledgement.worker.value());
    insert_acknowledgement_->BindInt(2, static_cast<int64_t>(acknowledgement.incarnation.value()));
    insert_acknowledgement_->BindInt(3, static_cast<int64_t>(acknowledgement.sequence));
    SHERD_RETURN_IF_ERROR(insert_acknowledgement_->Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteEventLog::Synchronize(bool every_commit) {
  if (synchronizes_ == every_commit) return absl::OkStatus();
  synchronizes_ = every_commit;
  return database_->Execute(every_commit ? "PRAGMA synchronous = FULL"
                                         : "PRAGMA synchronous = NORMAL");
}

absl::Status SqliteEventLog::InTransaction(const std::function<absl::Status()>& change) {
  SHERD_RETURN_IF_ERROR(database_->Execute("BEGIN"));
  absl::Status status = change();
  if (status.ok()) status = database_->Execute("COMMIT");
  // A failed COMMIT may leave the transaction open; a ROLLBACK without one fails, which is no news.
  if (!status.ok()) database_->Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status SqliteEventLog::Commit(const LogBatch& batch) {
  if (batch.empty()) return absl::OkStatus();
  SHERD_RETURN_IF_ERROR(Synchronize(!batch.events.empty()));
  return InTransaction([&] { return Insert(batch); });
}

absl::Status SqliteEventLog::InsertSnapshot(const v1::StoredState& state) {
  // What could not be read must not count as one of the two.
  for (const int64_t sequence : damaged_) {
    SHERD_RETURN_IF_ERROR(
        database_->Execute(absl::StrCat("DELETE FROM snapshots WHERE sequence = ", sequence)));
  }
  const std::string payload = state.SerializeAsString();
  SHERD_ASSIGN_OR_RETURN(
      auto insert, database_->Prepare("INSERT OR REPLACE INTO snapshots VALUES (?1, ?2, ?3)"));
  insert->BindInt(1, state.sequence());
  insert->BindInt(2, ChecksumOf(state.sequence(), payload));
  insert->BindBlob(3, payload);
  return insert->Run();
}

absl::Status SqliteEventLog::DropAcknowledgements(const v1::StoredState& state) {
  std::set<std::string> known;
  for (const v1::StoredWorker& worker : state.workers()) known.insert(worker.id());
  SHERD_ASSIGN_OR_RETURN(const std::vector<Acknowledgement> all, Acknowledgements());
  SHERD_ASSIGN_OR_RETURN(auto drop,
                         database_->Prepare("DELETE FROM acknowledgements WHERE worker = ?1"));
  for (const Acknowledgement& past : all) {
    if (known.contains(past.worker.value())) continue;
    drop->BindText(1, past.worker.value());
    SHERD_RETURN_IF_ERROR(drop->Run());
  }
  return absl::OkStatus();
}

absl::Status SqliteEventLog::Compact(const v1::StoredState& state) {
  SHERD_RETURN_IF_ERROR(Synchronize(true));
  SHERD_RETURN_IF_ERROR(InTransaction([&]() -> absl::Status {
    SHERD_RETURN_IF_ERROR(InsertSnapshot(state));
    SHERD_RETURN_IF_ERROR(database_->Execute(kDropOldSnapshots));
    SHERD_RETURN_IF_ERROR(database_->Execute(kDropOldEvents));
    return DropAcknowledgements(state);
  }));
  damaged_.clear();
  // Nobody else reads, so all of the write-ahead log can be taken over and its file cut.
  return database_->Execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

absl::StatusOr<std::optional<v1::StoredState>> SqliteEventLog::ReadSnapshot() {
  SHERD_ASSIGN_OR_RETURN(
      auto query,
      database_->Prepare("SELECT sequence, checksum, payload FROM snapshots ORDER BY 1 DESC"));
  while (true) {
    SHERD_ASSIGN_OR_RETURN(const bool row, query->Step());
    if (!row) break;
    const int64_t sequence = query->Int(0);
    const std::string payload = query->Bytes(2);
    v1::StoredState state;
    const bool sound = query->Int(1) == ChecksumOf(sequence, payload) &&
                       state.ParseFromString(payload) && state.sequence() == sequence;
    if (sound) return state;
    damaged_.insert(sequence);
    Log(Severity::kWarning,
        absl::StrCat("the snapshot at event ", sequence, " in the event log ", path_,
                     " is damaged: what it stands for is taken from what is older, if it is whole; "
                     "check the disk"));
  }
  if (damaged_.empty()) return std::nullopt;
  SHERD_ASSIGN_OR_RETURN(auto first, database_->Prepare("SELECT 1 FROM events WHERE sequence = 1"));
  SHERD_ASSIGN_OR_RETURN(const bool complete, first->Step());
  if (complete) return std::nullopt;
  return Damaged("no snapshot in it can be read, and the events before them are gone");
}

absl::StatusOr<bool> SqliteEventLog::DropFeed(const JobId& job, int64_t most) {
  SHERD_RETURN_IF_ERROR(Synchronize(false));
  SHERD_ASSIGN_OR_RETURN(auto drop,
                         database_->Prepare("DELETE FROM feed WHERE job = ?1 AND sequence < ?2 + "
                                            "(SELECT MIN(sequence) FROM feed WHERE job = ?1)"));
  drop->BindText(1, job.value());
  drop->BindInt(2, most);
  SHERD_RETURN_IF_ERROR(drop->Run());
  SHERD_ASSIGN_OR_RETURN(auto rest,
                         database_->Prepare("SELECT 1 FROM feed WHERE job = ?1 LIMIT 1"));
  rest->BindText(1, job.value());
  SHERD_ASSIGN_OR_RETURN(const bool any, rest->Step());
  return !any;
}

absl::Status SqliteEventLog::Replay(int64_t after_sequence,
                                    const std::function<void(const v1::DurableEvent&)>& visit) {
  SHERD_ASSIGN_OR_RETURN(
      auto query,
      database_->Prepare("SELECT sequence, payload FROM events WHERE sequence > ?1 ORDER BY 1"));
  query->BindInt(1, after_sequence);
  int64_t expected = after_sequence + 1;
  while (true) {
    SHERD_ASSIGN_OR_RETURN(const bool row, query->Step());
    if (!row) return absl::OkStatus();
    v1::DurableEvent event;
    if (query->Int(0) != expected) return Damaged(absl::StrCat("event ", expected, " is missing"));
    if (!event.ParseFromString(query->Bytes(1)) || event.sequence() != expected) {
      return Damaged(absl::StrCat("event ", expected, " cannot be read"));
    }
    visit(event);
    ++expected;
  }
}

absl::Status SqliteEventLog::ReadLast(const JobId& job, v1::JobEvent::EventCase kind,
                                      v1::JobEvent& entry) {
  read_last_->Reset();
  read_last_->BindText(1, job.value());
  read_last_->BindInt(2, kind);
  SHERD_ASSIGN_OR_RETURN(const bool row, read_last_->Step());
  if (row && !entry.ParseFromString(read_last_->Bytes(0))) {
    return Damaged(absl::StrCat("the feed of job ", job.value(), " cannot be read"));
  }
  read_last_->Reset();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FeedSummary>> SqliteEventLog::SummarizeFeeds() {
  SHERD_ASSIGN_OR_RETURN(auto query,
                         database_->Prepare(absl::StrCat("SELECT job, MAX(sequence), SUM(kind = ",
                                                         static_cast<int>(v1::JobEvent::kLog),
                                                         ") FROM feed GROUP BY job")));
  std::vector<FeedSummary> summaries;
  while (true) {
    SHERD_ASSIGN_OR_RETURN(const bool row, query->Step());
    if (!row) return summaries;
    FeedSummary summary;
    summary.job = JobId(query->Bytes(0));
    summary.last_sequence = query->Int(1);
    summary.log_lines = query->Int(2);
    const JobId& job = summary.job;
    SHERD_RETURN_IF_ERROR(ReadLast(job, v1::JobEvent::kStep, summary.last_step));
    SHERD_RETURN_IF_ERROR(ReadLast(job, v1::JobEvent::kEval, summary.last_eval));
    SHERD_RETURN_IF_ERROR(ReadLast(job, v1::JobEvent::kRollback, summary.last_rollback));
    summaries.push_back(std::move(summary));
  }
}

absl::StatusOr<std::vector<Acknowledgement>> SqliteEventLog::Acknowledgements() {
  SHERD_ASSIGN_OR_RETURN(
      auto query, database_->Prepare("SELECT worker, incarnation, sequence FROM acknowledgements"));
  std::vector<Acknowledgement> all;
  while (true) {
    SHERD_ASSIGN_OR_RETURN(const bool row, query->Step());
    if (!row) return all;
    all.push_back({WorkerId(query->Bytes(0)), Incarnation(static_cast<uint64_t>(query->Int(1))),
                   static_cast<uint64_t>(query->Int(2))});
  }
}

absl::StatusOr<std::vector<v1::JobEvent>> SqliteEventLog::ReadFeed(const JobId& job,
                                                                   int64_t after_sequence,
                                                                   int64_t limit) {
  read_feed_->Reset();
  read_feed_->BindText(1, job.value());
  read_feed_->BindInt(2, after_sequence);
  read_feed_->BindInt(3, limit);
  std::vector<v1::JobEvent> entries;
  while (true) {
    SHERD_ASSIGN_OR_RETURN(const bool row, read_feed_->Step());
    if (!row) break;
    if (!entries.emplace_back().ParseFromString(read_feed_->Bytes(0))) {
      return Damaged(absl::StrCat("the feed of job ", job.value(), " cannot be read"));
    }
  }
  read_feed_->Reset();
  return entries;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventLog>> EventLog::Open(const std::string& directory) {
  auto log = std::make_unique<SqliteEventLog>();
  SHERD_RETURN_IF_ERROR(log->Init(directory));
  return std::unique_ptr<EventLog>(std::move(log));
}

}  // namespace sherd
