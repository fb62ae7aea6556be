// Every call of NCCL hangs, fails and takes its time once in the life of a group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "nccl_ranks.h"
#include "tests/worker/comm/communicator_kinds.h"

namespace sherd {
namespace {

struct Call {
  NcclCall call;
  std::string name;
  // Of leaving, when all that was to be done has been.
  bool leaves = false;
  // Whether an abort of the communicator frees one that hangs.
  bool abort_frees = true;
  // Whether it is of one rank, or of whoever comes first.
  bool of_rank = true;
};

std::ostream& operator<<(std::ostream& out, const Call& call) { return out << call.name; }

const std::vector<Call> kCalls = {
    {NcclCall::kGetUniqueId, "GetUniqueId", false, false, false},
    {NcclCall::kMemAlloc, "MemAlloc", false, false, false},
    {NcclCall::kInit, "Init", false, false},
    {NcclCall::kAsyncError, "AsyncError"},
    {NcclCall::kRegister, "Register"},
    {NcclCall::kGroupStart, "GroupStart", false, false, false},
    {NcclCall::kGroupEnd, "GroupEnd"},
    {NcclCall::kKernel, "Kernel"},
    {NcclCall::kDeregister, "Deregister", true},
    {NcclCall::kFinalize, "Finalize", true},
    {NcclCall::kDestroy, "Destroy", true, false},
};

class NcclEachCall : public testing::TestWithParam<Call> {
 protected:
  NcclEachCall() {
    ranks_.form().form_timeout = absl::Milliseconds(300);
    ranks_.form().operation_timeout = absl::Milliseconds(200);
  }

  // Two ranks form a group, reduce and leave. A process that would end is let go on, so that the
  // test's can.
  void Live(const NcclFault& fault) {
    ranks_.nccl().Inject(fault);
    absl::Notification ended;
    std::thread life([this, &ended] {
      RunRanks(2, [this](int rank) { statuses_[static_cast<size_t>(rank)] = LiveAs(rank); });
      ended.Notify();
    });
    const absl::Time start = absl::Now();
    while (!ended.WaitForNotificationWithTimeout(absl::Milliseconds(1))) {
      if (!Exits().empty()) ranks_.nccl().Release();
      if (absl::Now() - start < absl::Seconds(10)) continue;
      ADD_FAILURE() << "nothing ends it";
      ranks_.nccl().Release();
      break;
    }
    life.join();
  }

  NcclFault Fault(decltype(NcclFault::what) what) const {
    return {
        .call = GetParam().call, .rank = GetParam().of_rank ? 1 : -1, .what = what, .polls = 20};
  }

  bool all_ok() const { return statuses_[0].ok() && statuses_[1].ok(); }
  std::string Exits() { return ranks_.exit(0) + ranks_.exit(1); }
  // What the first process to end is told; the group may have given up before.
  std::string AwaitExit() {
    const absl::Time end = absl::Now() + absl::Seconds(10);
    while (Exits().empty() && absl::Now() < end) ranks_.AwaitExit(1, absl::Milliseconds(1));
    return Exits();
  }
  int aborts() { return ranks_.nccl().calls(NcclCall::kAbort); }

  NcclRanks ranks_{2};
  std::vector<absl::Status> statuses_{2};

 private:
  absl::Status LiveAs(int rank) {
    auto formed = ranks_.Form("data:0", rank);
    if (!formed.ok()) return formed.status();
    Communicator& comm = **formed;
    return comm.Wait(comm.AllReduce(comm.arena(), 1000, DType::kF32, 2));
  }
};

TEST_P(NcclEachCall, MayTakeItsTime) {
  Live(Fault(NcclFault::kDelay));
  EXPECT_TRUE(all_ok()) << statuses_[0] << "\n" << statuses_[1];
  EXPECT_EQ(aborts(), 0);
  EXPECT_EQ(Exits(), "");
}

TEST_P(NcclEachCall, MayFailAndAllAreTold) {
  Live(Fault(NcclFault::kFail));
  if (GetParam().leaves) {
    EXPECT_TRUE(all_ok()) << statuses_[0] << "\n" << statuses_[1];
  } else {
    for (const absl::Status& status : statuses_) EXPECT_FALSE(status.ok());
    EXPECT_THAT(absl::StrCat(statuses_[0].message(), statuses_[1].message()),
                testing::HasSubstr("scripted error 3"));
  }
  EXPECT_EQ(Exits(), "");
}

// F33: with an abort where that helps, with the process where it does not.
TEST_P(NcclEachCall, MayHang) {
  Live(Fault(NcclFault::kHang));
  EXPECT_EQ(all_ok(), GetParam().leaves) << statuses_[0] << "\n" << statuses_[1];
  if (GetParam().abort_frees) {
    EXPECT_EQ(Exits(), "");
    EXPECT_GE(aborts(), 1);
  } else {
    EXPECT_THAT(AwaitExit(), testing::HasSubstr("a call of NCCL has not returned"));
  }
}

TEST_P(NcclEachCall, EndsItsProcessWhenNothingFreesIt) {
  Live(Fault(NcclFault::kStubborn));
  EXPECT_EQ(all_ok(), GetParam().leaves) << statuses_[0] << "\n" << statuses_[1];
  EXPECT_THAT(AwaitExit(), testing::HasSubstr("NCCL could not be aborted within 500ms"));
}

INSTANTIATE_TEST_SUITE_P(, NcclEachCall, testing::ValuesIn(kCalls),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sherd
