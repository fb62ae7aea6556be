#include "nccl_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/check.h"
#include "tests/worker/comm/communicator_kinds.h"

namespace sherd {

NcclRanks::NcclRanks(int size) {
  exits_.resize(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    auto made = std::make_unique<Rank>();
    made->epoch = std::make_unique<NcclEpoch>(
        nccl_, made->device, NcclEpoch::Options{.exit_hard = [this, rank](absl::string_view why) {
          absl::MutexLock lock(&mutex_);
          exits_[static_cast<size_t>(rank)] = std::string(why);
        }});
    made->listener = *DataListener::Bind();
    addresses_.push_back(made->listener->network_address());
    ranks_.push_back(std::move(made));
  }
}

NcclRanks::~NcclRanks() {
  nccl_.Release();
  ranks_.clear();
  EXPECT_THAT(nccl_.violations(), testing::IsEmpty());
  EXPECT_EQ(nccl_.live_comms(), 0);
  EXPECT_EQ(nccl_.live_allocations(), 0);
}

NcclRanks::Formed NcclRanks::Form(const std::string& group, int rank, const NcclOptions& options) {
  const GroupSpec spec{.job_id = "job",
                       .epoch = 5,
                       .group = group,
                       .secret = "s3cret",
                       .rank = rank,
                       .addresses = addresses_};
  return FormNcclCommunicator(epoch(rank), listener(rank), spec, form_, options, &abort(rank));
}

std::vector<NcclRanks::Formed> NcclRanks::FormAll(const std::string& group) {
  std::vector<Formed> formed(ranks_.size());
  RunRanks(size(), [&](int rank) { formed[static_cast<size_t>(rank)] = Form(group, rank); });
  return formed;
}

std::vector<std::unique_ptr<Communicator>> NcclRanks::MustForm(const std::string& group) {
  std::vector<std::unique_ptr<Communicator>> members;
  for (Formed& formed : FormAll(group)) {
    EXPECT_TRUE(formed.ok()) << formed.status();
    SHERD_CHECK(formed.ok());
    members.push_back(*std::move(formed));
  }
  return members;
}

std::string NcclRanks::exit(int rank) {
  absl::MutexLock lock(&mutex_);
  return exits_[static_cast<size_t>(rank)];
}

bool NcclRanks::AwaitExit(int rank, absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  const auto told = [this, rank]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !exits_[static_cast<size_t>(rank)].empty();
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&told), patience);
}

}  // namespace sherd
