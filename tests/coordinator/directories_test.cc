#include "coordinator/core/directories.h"

#include <string>

#include "gtest/gtest.h"

namespace sherd {
namespace {

// Whether a job in `wanted` meets one in `taken`, when workers' output root is `root`.
bool Meet(const std::string& wanted, const std::string& taken, const std::string& root) {
  State state;
  JobRecord& job = state.jobs[JobId("a-1")];
  job.id = JobId("a-1");
  job.state = v1::JOB_STATE_RUNNING;
  job.spec.mutable_checkpoint()->set_dir(taken);
  if (!root.empty()) state.workers[WorkerId("w0")].output_root = root;
  v1::JobSpec spec;
  spec.mutable_checkpoint()->set_dir(wanted);
  return FindJobInDirectory(state, JobId("b-2"), spec, HoldsWorkers) != nullptr;
}

TEST(Directories, MeetWhenTheyAreOneHoweverTheyAreSpelled) {
  EXPECT_TRUE(Meet("x", "x", ""));
  EXPECT_TRUE(Meet("x", "./y/..//x/", ""));
  EXPECT_TRUE(Meet("../x", "y/../../x", ""));
  EXPECT_TRUE(Meet("/x", "/../x", ""));
  EXPECT_TRUE(Meet("x", "/srv/out/x", "/srv/out/"));
  EXPECT_TRUE(Meet("/srv/./out/x", "x", "/srv/out"));
}

TEST(Directories, MeetWhenOneHoldsTheOther) {
  for (const char* root : {"", "/srv/out"}) {
    EXPECT_TRUE(Meet("r", "r/s", root));
    EXPECT_TRUE(Meet("r/s/t", "r", root));
    EXPECT_TRUE(Meet(".", "r", root));
    EXPECT_TRUE(Meet("/", "/r", root));
  }
  EXPECT_TRUE(Meet("/srv", "r", "/srv/out"));
}

TEST(Directories, AreApartOtherwise) {
  for (const char* root : {"", "/srv/out"}) {
    EXPECT_FALSE(Meet("r", "s", root));
    EXPECT_FALSE(Meet("r", "rs", root));
    EXPECT_FALSE(Meet("r/s", "r/t", root));
    EXPECT_FALSE(Meet("../r", "r", root));
    EXPECT_FALSE(Meet("x", "/elsewhere/x", root));
    EXPECT_FALSE(Meet("", "x", root));
    EXPECT_FALSE(Meet("x", "", root));
  }
}

}  // namespace
}  // namespace sherd
