#include "worker/record/job_record.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "worker/checkpoint/save.h"
#include "worker/record/figure_file.h"

namespace sherd {
namespace {

double Now() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

Figures FiguresOf(const v1::StepReport& report) {
  Figures figures;
  figures.step = report.step();
  figures.epoch = report.epoch();
  figures.tokens = report.tokens();
  figures.time = Now();
  figures.values = {{"loss", report.loss()},
                    {"grad_norm", report.grad_norm()},
                    {"lr", report.lr()},
                    {"tokens_per_second", report.tokens_per_second()},
                    {"step_ms", report.step_ms()}};
  return figures;
}

}  // namespace

JobRecord::JobRecord(FileSystem& files, std::string directory, int64_t epoch, int64_t last,
                     std::vector<v1::StepReport> known)
    : files_(files),
      directory_(std::move(directory)),
      epoch_(epoch),
      last_(last),
      known_(std::move(known)),
      thread_([this] { Run(); }) {}

JobRecord::~JobRecord() {
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void JobRecord::Add(const v1::StepReport& report) { Put(FiguresOf(report)); }

void JobRecord::Add(const v1::EvalReport& report) {
  Figures figures;
  figures.evaluation = true;
  figures.step = report.step();
  figures.epoch = report.epoch();
  figures.tokens = report.tokens();
  figures.time = Now();
  figures.values = {{"loss", report.loss()}};
  Put(std::move(figures));
}

void JobRecord::Put(Figures figures) {
  const absl::MutexLock lock(&mutex_);
  if (!failed_) waiting_.push_back(std::move(figures));
}

absl::Status JobRecord::TakeFailure() {
  const absl::MutexLock lock(&mutex_);
  return std::exchange(failure_, absl::OkStatus());
}

std::deque<Figures> JobRecord::Await() {
  const absl::MutexLock lock(&mutex_);
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ending_ || !waiting_.empty();
  };
  mutex_.Await(absl::Condition(&due));
  return std::exchange(waiting_, {});
}

void JobRecord::Run() {
  absl::Status written = Write();
  if (written.ok()) return;
  const absl::MutexLock lock(&mutex_);
  failed_ = true;
  waiting_.clear();
  failure_ = std::move(written);
}

absl::Status JobRecord::Write() {
  std::deque<Figures> next = Await();
  if (next.empty()) return absl::OkStatus();
  const MetricsJsonl lines;
  const TensorBoardEvents events;
  FigureFile of_lines(files_, lines, directory_, kMetricsFile);
  FigureFile of_events(files_, events, directory_, kEventsFile);
  for (FigureFile* const file : {&of_lines, &of_events}) {
    SHERD_RETURN_IF_ERROR(file->Open(last_, absl::StrCat("epoch-", epoch_), Now()));
    for (const v1::StepReport& report : known_) {
      SHERD_RETURN_IF_ERROR(file->Add(FiguresOf(report)));
    }
  }
  for (; !next.empty(); next = Await()) {
    for (const Figures& figures : next) {
      SHERD_RETURN_IF_ERROR(of_lines.Add(figures));
      SHERD_RETURN_IF_ERROR(of_events.Add(figures));
    }
  }
  return absl::OkStatus();
}

}  // namespace sherd
