#include "worker/pack/pieces_run.h"

#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr int kTicksBetweenReports = 10;

int64_t BytesOf(const PlannedPiece& piece) {
  int64_t bytes = 0;
  for (const PlannedRange& range : piece) bytes += range.end - range.begin;
  return bytes;
}

// What the threads share.
class Run {
 public:
  explicit Run(const std::vector<PlannedPiece>& plan) : plan_(plan) {
    for (const PlannedPiece& piece : plan) progress_.total_bytes += BytesOf(piece);
  }

  // The next piece that nobody has taken; none after the last one, or after an error.
  std::optional<size_t> Take() ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    if (!status_.ok() || next_ == plan_.size()) return std::nullopt;
    return next_++;
  }
  void Finish(size_t piece, const PieceCounts& counts, bool found) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    done_.tokens += counts.tokens;
    done_.documents += counts.documents;
    done_.found_pieces += found ? 1 : 0;
    progress_.bytes += BytesOf(plan_[piece]);
    if (found) progress_.found_bytes += BytesOf(plan_[piece]);
  }
  void Fail(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(status);
  }
  void EndThread() ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    ++ended_;
  }
  // Whether so many threads have ended; waits for kTick.
  bool AwaitEnd(int threads, PackProgress& progress) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    const auto ended = [this, threads]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ == threads; };
    const bool end = mutex_.AwaitWithTimeout(absl::Condition(&ended), kTick);
    progress = progress_;
    return end;
  }
  absl::StatusOr<PiecesDone> Result() ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    return done_;
  }

 private:
  const std::vector<PlannedPiece>& plan_;
  absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int ended_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  PiecesDone done_ ABSL_GUARDED_BY(mutex_);
  PackProgress progress_ ABSL_GUARDED_BY(mutex_);
};

absl::Status MakePiece(DocumentTokenizer& documents, const PlannedPiece& planned, size_t piece,
                       const PieceStore& store, Run& run) {
  if (const std::optional<PieceCounts> found = store.Find(piece)) {
    run.Finish(piece, *found, true);
    return absl::OkStatus();
  }
  SHERD_ASSIGN_OR_RETURN(const TokenizedPiece tokenized, documents.Tokenize(planned));
  SHERD_RETURN_IF_ERROR(store.Put(piece, tokenized));
  run.Finish(piece, {static_cast<int64_t>(tokenized.tokens.size()), tokenized.documents}, false);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PiecesDone> RunPieces(const std::vector<SourceFile>& files,
                                     const std::vector<PlannedPiece>& plan,
                                     const Tokenizer& tokenizer, const DocumentOptions& options,
                                     const PieceStore& store, int threads,
                                     const std::function<bool()>& stopped,
                                     absl::FunctionRef<void(const PackProgress&)> on_progress) {
  const absl::Time start = absl::Now();
  Run run(plan);
  const auto work = [&] {
    DocumentTokenizer documents(files, tokenizer, options);
    while (const std::optional<size_t> piece = run.Take()) {
      absl::Status status = MakePiece(documents, plan[*piece], *piece, store, run);
      if (!status.ok()) run.Fail(std::move(status));
    }
    run.EndThread();
  };
  std::vector<std::jthread> workers;
  for (int thread = 0; thread < threads; ++thread) workers.emplace_back(work);
  PackProgress progress;
  for (int tick = 0; !run.AwaitEnd(threads, progress); ++tick) {
    if (stopped != nullptr && stopped()) run.Fail(absl::AbortedError("stopped"));
    if (tick % kTicksBetweenReports > 0) continue;
    progress.seconds = absl::ToDoubleSeconds(absl::Now() - start);
    on_progress(progress);
  }
  workers.clear();
  return run.Result();
}

}  // namespace sherd
