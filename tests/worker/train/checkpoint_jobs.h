#pragma once

#include <climits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/list.h"

namespace sherd::testing {

// The real file system until something is asked of a path that holds `part`: then creating a file
// there fails with `error`, so many times, or waits for Release.
class FaultyFileSystem final : public FileSystem {
 public:
  FaultyFileSystem(std::string part, absl::Status error, int times = INT_MAX)
      : part_(std::move(part)), error_(std::move(error)), times_(times) {}

  void Release() {
    absl::MutexLock lock(&mutex_);
    released_ = true;
  }
  // Returns when somebody has come to such a path.
  void AwaitSomebody() { absl::MutexLock lock(&mutex_, absl::Condition(&reached_)); }

  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override {
    if (absl::StrContains(path, part_)) {
      absl::MutexLock lock(&mutex_);
      reached_ = true;
      if (!error_.ok() && times_-- > 0) return error_;
      if (error_.ok()) mutex_.Await(absl::Condition(&released_));
    }
    return real_->Create(path);
  }
  absl::Status MakeDirectories(const std::string& path) override {
    return real_->MakeDirectories(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return real_->List(directory);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return real_->SyncDirectory(path);
  }
  absl::Status RenameOrExchange(const std::string& from, const std::string& to) override {
    return real_->RenameOrExchange(from, to);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return real_->Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override { return real_->Remove(path); }

 private:
  const std::unique_ptr<FileSystem> real_ = MakePosixFileSystem();
  const std::string part_;
  const absl::Status error_;
  absl::Mutex mutex_;
  int times_ ABSL_GUARDED_BY(mutex_);
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  bool reached_ ABSL_GUARDED_BY(mutex_) = false;
};

// Jobs one after another in one directory.
class CheckpointJobs : public ::testing::Test {
 protected:
  v1::JobSpec Job(absl::string_view strategy, int64_t steps, int64_t every,
                  absl::string_view resume = "none", int64_t tensor = 1) {
    v1::JobSpec spec = TinyJob(text_, strategy, v1::DATA_TYPE_FP32, 8, steps);
    spec.mutable_parallel()->set_tensor(tensor);
    spec.mutable_checkpoint()->set_every(every);
    spec.mutable_checkpoint()->set_resume(std::string(resume));
    return spec;
  }

  // All of its ranks end well.
  static std::vector<RankRecord> Run(const v1::JobSpec& spec, int world, LocalEpoch epoch = {}) {
    LocalWorld job(spec, world, std::move(epoch));
    std::vector<RankRecord> records = job.Run();
    for (const RankRecord& record : records) {
      EXPECT_TRUE(record.result.status.ok()) << record.result.status;
    }
    return records;
  }

  // The steps of the checkpoints in the job's directory, newest first; all are sound to the last
  // byte.
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    const auto listed = ListCheckpoints(*files_, root_, Look::kEveryByte);
    if (!listed.ok()) return steps;
    for (const ListedCheckpoint& one : *listed) {
      EXPECT_TRUE(one.state.ok()) << one.state;
      if (one.kind == "training") steps.push_back(one.step);
    }
    return steps;
  }

  const TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", MakeText(4000, 3));
  const std::string root_ = scratch_ / "weights";
  const std::unique_ptr<FileSystem> files_ = MakePosixFileSystem();
};

}  // namespace sherd::testing
