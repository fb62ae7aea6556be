#include "client/local_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/janitor.h"
#include "client/run_files.h"
#include "client/run_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

// Waits for a condition that another process brings about.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (absl::Now() < deadline) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return condition();
}

bool GroupIsGone(pid_t group) { return kill(-group, 0) != 0 && errno == ESRCH; }

class LocalProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<LocalProcess> Shell(const std::string& script) {
    auto process = LocalProcess::Start({"/bin/sh", "-c", script}, Log());
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }
  std::string Log() const { return scratch_ / "log"; }

  const TemporaryDirectory scratch_;
};

TEST_F(LocalProcessTest, KeepsTheLogOfAnEarlierRun) {
  for (const char* script : {"echo first", "echo second"}) {
    auto process = Shell(script);
    EXPECT_TRUE(Eventually([&] { return process->HowItEnded().has_value(); }));
  }
  EXPECT_EQ(TailOfFile(Log()), "first\nsecond");
  EXPECT_EQ(TailOfFile(Log(), 6), "second");
  EXPECT_EQ(TailOfFile(Log(), 13), "");
}

TEST_F(LocalProcessTest, PathsThatNoJobCanHaveAreOneSentence) {
  RunOptions options;
  const auto check = [&](const std::string& working_directory) {
    return std::string(
        CheckPaths(options, PlanRun(options, JobFile(), working_directory), working_directory)
            .message());
  };
  EXPECT_EQ(check(scratch_.path()), "");
  EXPECT_THAT(check("/\xff"), HasSubstr("present directory is not UTF-8"));
  options.out = "\xff";
  EXPECT_THAT(check(scratch_.path()), HasSubstr("--out is not UTF-8"));
  options = RunOptions();
  options.data_root = scratch_ / "none";
  EXPECT_EQ(check(scratch_.path()), "--data-root " + options.data_root + " is not a directory");
}

TEST_F(LocalProcessTest, ARefusedRunRemovesWhatItMadeAlone) {
  const std::string fresh = scratch_ / "out/a";
  RunFiles made(fresh, fresh + "/logs");
  ASSERT_TRUE(made.Make().ok());
  std::ofstream(fresh + "/logs/workers.log") << "x";
  made.Remove();
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path()));

  std::filesystem::create_directories(fresh + "/logs");
  std::ofstream(fresh + "/logs/workers.log") << "of an earlier run";
  RunFiles kept(fresh, fresh + "/logs");
  ASSERT_TRUE(kept.Make().ok());
  std::ofstream(fresh + "/logs/coordinator.log") << "x";
  kept.Remove();
  EXPECT_EQ(TailOfFile(fresh + "/logs/workers.log"), "of an earlier run");
  EXPECT_FALSE(std::filesystem::exists(fresh + "/logs/coordinator.log"));
}

TEST_F(LocalProcessTest, TellsHowItEnded) {
  auto process = Shell("echo out; echo err >&2; exit 7");
  EXPECT_TRUE(Eventually([&] { return process->HowItEnded().has_value(); }));
  EXPECT_EQ(process->HowItEnded(), "exited with code 7");
  EXPECT_EQ(TailOfFile(Log()), "out\nerr");
  auto killed = Shell("kill -9 $$");
  EXPECT_TRUE(Eventually([&] { return killed->HowItEnded().has_value(); }));
  EXPECT_EQ(killed->HowItEnded(), "was killed by signal 9 (Killed)");
}

TEST_F(LocalProcessTest, NamesAProgramThatIsNotThere) {
  const absl::Status status = LocalProcess::Start({"/no/such/program"}, Log()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot start /no/such/program"));
}

TEST_F(LocalProcessTest, StopsPolitelyFirst) {
  auto process = Shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done");
  EXPECT_TRUE(Eventually([&] { return TailOfFile(Log()) == "up"; }));
  process->Stop(absl::Seconds(20));
  EXPECT_EQ(process->HowItEnded(), "exited with code 3");
  EXPECT_EQ(TailOfFile(Log()), "up\nbye");
}

// F36: neither a process that ignores SIGTERM nor what it started outlives Stop.
TEST_F(LocalProcessTest, LeavesNothingOfItsGroup) {
  auto process = Shell("trap '' TERM; sleep 1000 & echo up; while :; do sleep 0.01; done");
  EXPECT_TRUE(Eventually([&] { return TailOfFile(Log()) == "up"; }));
  const pid_t group = process->pid();
  process->Stop(absl::Milliseconds(50));
  EXPECT_TRUE(Eventually([&] { return GroupIsGone(group); }));
  // One that ended by itself but left a child behind.
  auto leaver = Shell("sleep 1000 & exit 0");
  const pid_t left = leaver->pid();
  EXPECT_TRUE(Eventually([&] { return leaver->HowItEnded().has_value(); }));
  EXPECT_TRUE(Eventually([&] { return GroupIsGone(left); }));
}

TEST_F(LocalProcessTest, TailIsBounded) {
  {
    std::ofstream file(Log());
    for (int i = 0; i < 10'000; ++i) file << "line " << i << "\n";
  }
  EXPECT_THAT(TailOfFile(Log()), ::testing::EndsWith("line 9998\nline 9999"));
  EXPECT_LT(TailOfFile(Log()).size(), 200u);
  EXPECT_EQ(TailOfFile(scratch_ / "none"), "");
}

// F36: whatever ends the process that owns it, kill -9 included.
TEST(Janitor, CleansUpAfterAProcessThatWasKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    absl::StatusOr<Janitor> janitor = Janitor::Start();
    if (!janitor.ok()) _exit(1);
    std::ofstream(janitor->directory() + "/file") << "x";
    const auto child = LocalProcess::Start({"/bin/sh", "-c", "sleep 1000"}, "/dev/null");
    const auto forgotten = LocalProcess::Start({"/bin/sh", "-c", "sleep 1000"}, "/dev/null");
    janitor->TakeCareOf((*child)->pid());
    janitor->TakeCareOf((*forgotten)->pid());
    janitor->Forget((*forgotten)->pid());
    const std::string told =
        absl::StrCat((*child)->pid(), " ", (*forgotten)->pid(), " ", janitor->directory(), "\n");
    if (write(ends[1], told.data(), told.size()) < 0) _exit(1);
    raise(SIGKILL);
  }
  close(ends[1]);
  FILE* const stream = fdopen(ends[0], "r");
  pid_t child = 0, forgotten = 0;
  char directory[256];
  ASSERT_EQ(fscanf(stream, "%d %d %255s", &child, &forgotten, directory), 3);
  fclose(stream);
  EXPECT_EQ(waitpid(owner, nullptr, 0), owner);
  EXPECT_TRUE(Eventually([&] { return GroupIsGone(child); }));
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(directory); })) << directory;
  EXPECT_FALSE(GroupIsGone(forgotten));
  kill(-forgotten, SIGKILL);
}

TEST(Janitor, RemovesItsDirectoryAtTheOrderlyEnd) {
  std::string directory;
  {
    absl::StatusOr<Janitor> janitor = Janitor::Start();
    ASSERT_TRUE(janitor.ok());
    directory = janitor->directory();
    std::filesystem::create_directories(directory + "/a/b");
  }
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST(RunPlan, MakesPathsAbsolute) {
  JobFile file;
  file.spec.set_name("tiny");
  file.spec.mutable_data()->add_train("text/a.txt");
  file.spec.mutable_data()->add_train("/else/b.txt");
  file.spec.mutable_data()->add_eval("../c.txt");
  RunOptions options;
  RunPlan plan = PlanRun(options, file, "/home/me");
  EXPECT_THAT(plan.spec.data().train(),
              ::testing::ElementsAre("/home/me/text/a.txt", "/else/b.txt"));
  EXPECT_THAT(plan.spec.data().eval(), ::testing::ElementsAre("/home/c.txt"));
  EXPECT_EQ(plan.data_root, "/");
  EXPECT_EQ(plan.output_root, "/home/me/out/tiny");
  EXPECT_EQ(plan.log_directory, "/home/me/out/tiny/logs");
  EXPECT_EQ(plan.spec.checkpoint().dir(), "weights");

  options.data_root = "data";
  options.out = "/results";
  file.spec.mutable_checkpoint()->set_dir("w");
  plan = PlanRun(options, file, "/home/me");
  EXPECT_THAT(plan.spec.data().train(), ::testing::ElementsAre("text/a.txt", "/else/b.txt"));
  EXPECT_EQ(plan.data_root, "/home/me/data");
  EXPECT_EQ(plan.output_root, "/results");
  EXPECT_EQ(plan.spec.checkpoint().dir(), "w");
}

TEST(RunPlan, RefusesTooFewOrTooManyWorkers) {
  v1::JobSpec spec;
  spec.mutable_elastic()->set_min_workers(3);
  RunOptions options;
  options.workers = 0;
  EXPECT_EQ(CheckWorkerCount(options.workers, kMostLocalWorkers, spec).message(),
            "--workers 0 is out of range; the nearest valid value is 1 (1 to 1024)");
  options.workers = 2;
  EXPECT_EQ(CheckWorkerCount(options.workers, kMostLocalWorkers, spec).message(),
            "--workers 2 is less than elastic.min_workers, which is 3");
  options.workers = 3;
  EXPECT_TRUE(CheckWorkerCount(options.workers, kMostLocalWorkers, spec).ok());
  spec.mutable_parallel()->set_tensor(4);
  EXPECT_EQ(CheckWorkerCount(options.workers, kMostLocalWorkers, spec).message(),
            "--workers 3 is too few: a world of at least 3 workers is a multiple of 4 (tensor 4); "
            "the nearest valid value is 4");
  EXPECT_TRUE(CheckWorkerCount(4, kMostLocalWorkers, spec).ok());
}

}  // namespace
}  // namespace sherd
