#include "common/file_commands.h"

#include "gtest/gtest.h"

namespace sherd {
namespace {

TEST(FileCommands, WhatTheUserNamedIsBadUsage) {
  for (const absl::Status& error :
       {absl::InvalidArgumentError(""), absl::FailedPreconditionError(""), absl::NotFoundError(""),
        absl::OutOfRangeError(""), absl::DataLossError(""), absl::PermissionDeniedError("")}) {
    EXPECT_EQ(FileCommandCode(error), 2) << error;
  }
  EXPECT_EQ(FileCommandCode(absl::UnavailableError("")), 1);
  EXPECT_EQ(FileCommandCode(absl::ResourceExhaustedError("")), 1);
}

TEST(FileCommands, TheWorkersMachineIsThisOne) {
  EXPECT_EQ(AsToldHere("a.txt does not exist on the worker's machine; name another"),
            "a.txt does not exist; name another");
}

}  // namespace
}  // namespace sherd
