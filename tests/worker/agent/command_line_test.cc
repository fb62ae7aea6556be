#include "worker/agent/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "worker/agent/identity.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

TEST(CommandLine, DevicesNameANumberOfSlots) {
  EXPECT_EQ(ParseDevices("all", 6)->count, 6);
  EXPECT_EQ(ParseDevices("all", 6)->Device(5), "cpu:5");
  EXPECT_EQ(ParseDevices("cpu:4", 6)->count, 4);
  EXPECT_EQ(ParseDevices("cuda:8", 6)->count, 8);
  EXPECT_EQ(ParseDevices("cuda:8", 6)->Device(7), "cuda:7");
  for (const char* wrong : {"", "cpu", "cpu:", "cpu:0", "cpu:-1", "cpu:4x", "cpu:99999", "4",
                            "gpu:1", "cuda", "cuda:1:1"}) {
    EXPECT_EQ(ParseDevices(wrong, 6).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(CommandLine, RootsAreMadeOrMissedAtTheStart) {
  const TemporaryDirectory root;
  WorkerFlags flags;
  EXPECT_TRUE(PrepareRoots(flags).ok());
  flags.data_root = root.path();
  flags.output_root = root / "made/now";
  EXPECT_TRUE(PrepareRoots(flags).ok());
  EXPECT_TRUE(std::filesystem::is_directory(root / "made/now"));
  flags.output_root = root.Write("file", "");
  EXPECT_THAT(std::string(PrepareRoots(flags).message()), HasSubstr(root / "file"));
  flags.data_root = root / "nowhere";
  const absl::Status status = PrepareRoots(flags);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(root / "nowhere"));
}

TEST(CommandLine, AConnectTimeoutIsADuration) {
  EXPECT_EQ(*ParseTimeout("0"), absl::ZeroDuration());
  EXPECT_EQ(*ParseTimeout("1m30s"), absl::Seconds(90));
  for (const char* wrong : {"", "30", "-1s", "soon"})
    EXPECT_FALSE(ParseTimeout(wrong).ok()) << wrong;
}

TEST(CommandLine, APeakIsANumberAboveZero) {
  EXPECT_EQ(*ParsePeakFlops(""), 0);
  EXPECT_EQ(*ParsePeakFlops("989.5e12"), 989.5e12);
  for (const char* wrong : {"0", "-1", "fast", "1e12x", "inf", "nan"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParsePeakFlops(wrong).status())) << wrong;
  }
}

TEST(CommandLine, EveryChildServesMetricsOnAPortOfItsOwn) {
  EXPECT_EQ(*ChildAddress("--metrics", "127.0.0.1:0", 3), "127.0.0.1:0");
  EXPECT_EQ(*ChildAddress("--metrics", "127.0.0.1:9100", 3), "127.0.0.1:9103");
  for (const char* wrong : {"", "9100", ":9100", "host:x", "host:65534", "host:-1"}) {
    EXPECT_FALSE(ChildAddress("--metrics", wrong, 3).ok()) << wrong;
  }
}

TEST(CommandLine, AWrongAddressIsAnsweredWithTheCoordinatorsUsualOne) {
  EXPECT_TRUE(CheckAddress("--coordinator", "host:1").ok());
  EXPECT_THAT(std::string(CheckAddress("--coordinator", "host").message()),
              HasSubstr("127.0.0.1:7700"));
}

// What a supervisor writes, its child must read.
TEST(CommandLine, AChildReadsWhatItsSupervisorGaveIt) {
  WorkerFlags flags;
  flags.coordinator = "127.0.0.1:7700";
  flags.name = "north";
  flags.device_library = "/opt/libsherd_cuda.so";
  flags.nccl = "/opt/libnccl.so.2";
  flags.nvml_library = "/opt/libnvidia-ml.so.1";
  flags.data_root = "/data";
  flags.data_host = "10.0.0.7";
  flags.connect_timeout = "30s";
  flags.peak_flops = "989.5e12";
  flags.security = {.ca = "ca",
                    .certificate = "own",
                    .key = "key",
                    .token = "token",
                    .server_name = "coordinator",
                    .insecure = true};
  const uint64_t incarnation = 18446744073709551557u;
  std::vector<std::string> arguments =
      ChildArguments(flags, 2, "127.0.0.1:0", "cuda:1", Incarnation(incarnation));
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());

  WorkerFlags read;
  CLI::App app("", kWorkerProgram);
  DeclareFlags(app, read);
  app.parse(static_cast<int>(words.size()), words.data());
  EXPECT_EQ(read.coordinator, flags.coordinator);
  EXPECT_EQ(read.data_root, flags.data_root);
  EXPECT_EQ(read.output_root, "");
  EXPECT_EQ(read.device_library, "/opt/libsherd_cuda.so");
  EXPECT_EQ(read.nccl, "/opt/libnccl.so.2");
  EXPECT_EQ(read.nvml_library, "/opt/libnvidia-ml.so.1");
  EXPECT_EQ(read.connect_timeout, "30s");
  EXPECT_EQ(read.peak_flops, "989.5e12");
  EXPECT_EQ(read.metrics, "127.0.0.1:0");
  EXPECT_EQ(read.threads, 2);
  EXPECT_EQ(read.health, "");
  EXPECT_TRUE(read.tell_registered);
  EXPECT_EQ(read.security.ca, "ca");
  EXPECT_EQ(read.security.certificate, "own");
  EXPECT_EQ(read.security.key, "key");
  EXPECT_EQ(read.security.token, "token");
  EXPECT_EQ(read.security.server_name, "coordinator");
  EXPECT_TRUE(read.security.insecure);
  EXPECT_EQ(read.data_host, "10.0.0.7");
  EXPECT_EQ(read.incarnation, incarnation);
  EXPECT_EQ(WorkerIdOf(read, read.device), WorkerId("north/cuda:1"));
}

TEST(Identity, NoTwoLivesShareANumber) {
  EXPECT_NE(DrawIncarnation(), DrawIncarnation());
  EXPECT_GE(HostCores(), 1);
  EXPECT_FALSE(HostName().empty());
  EXPECT_GT(HostMemoryBytes(), 0);
}

}  // namespace
}  // namespace sherd
