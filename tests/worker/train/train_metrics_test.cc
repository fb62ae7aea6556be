// A step's series are brought up to date whoever reads them, and however slowly.

#include "worker/train/train_metrics.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/metrics.h"
#include "prometheus/text_serializer.h"
#include "worker/comm/file_descriptor.h"

namespace sherd {
namespace {

constexpr char kRequest[] = "GET /metrics HTTP/1.0\r\n\r\n";
// More than a server's socket and a small one of the reader's take in.
constexpr size_t kLargePage = 8 << 20;
constexpr int kSmallBuffer = 1 << 12;

class TrainMetricsTest : public ::testing::Test {
 protected:
  std::unique_ptr<TrainMetrics> Make() {
    return std::make_unique<TrainMetrics>(
        *registry_, "job-1", "job", "zero3", 0,
        std::array<absl::string_view, kWireGroups>{"shm", "shm", "tcp", "shm", "shm"});
  }

  // Of the groups' first collectives, some for the first time.
  void Step(TrainMetrics& metrics) {
    ++step_;
    counts_[static_cast<size_t>(step_ % kWireGroups)][0].Count(1e-3);
    metrics.RecordStep(figures_, 0.1, step_, 1e-3, 1e9, 4);
    metrics.RecordPhases({.forward = 0.1 * static_cast<double>(step_)});
    metrics.RecordMemory(meter_);
    metrics.RecordWire(counts_);
    metrics.RecordCopies({.bytes = step_, .seconds = 0.1, .waiting_seconds = 0.1});
  }

  std::string Page() { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  MemoryMeter meter_;
  const StepFigures figures_ = {};
  GroupCounts counts_ = {};
  int64_t step_ = 0;
};

// Of `buffer` bytes, if any is given, is what the kernel keeps for a reader that does not read.
FileDescriptor Ask(int port, int buffer = 0) {
  FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit = {.tv_sec = 30, .tv_usec = 0};
  if (buffer > 0) {
    EXPECT_EQ(::setsockopt(client.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)), 0);
  }
  EXPECT_EQ(::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  constexpr ssize_t kBytes = sizeof(kRequest) - 1;
  EXPECT_EQ(::send(client.get(), kRequest, kBytes, 0), kBytes);
  return client;
}

std::string ReadAll(const FileDescriptor& client) {
  std::string page;
  char piece[1 << 14];
  ssize_t got = 0;
  while ((got = ::recv(client.get(), piece, sizeof(piece), 0)) > 0) {
    page.append(piece, static_cast<size_t>(got));
  }
  EXPECT_EQ(got, 0);
  return page;
}

TEST_F(TrainMetricsTest, AReaderThatStandsStillHoldsUpNoStepAndNoOtherReader) {
  prometheus::BuildGauge()
      .Name("large")
      .Register(*registry_)
      .Add({{"text", std::string(kLargePage, 'x')}});
  const auto server = MetricsServer::Start("127.0.0.1:0", registry_, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const FileDescriptor stuck = Ask((*server)->port(), kSmallBuffer);
  // The scrape is on its way, and goes no further than sockets take it in.
  char first = 0;
  ASSERT_EQ(::recv(stuck.get(), &first, 1, 0), 1);
  auto metrics = Make();
  for (int i = 0; i < 100; ++i) Step(*metrics);
  EXPECT_NE(Page().find("sherd_step{job=\"job-1\",rank=\"0\"} 100\n"), std::string::npos);
  const std::string page = ReadAll(Ask((*server)->port()));
  EXPECT_NE(page.find("sherd_step{job=\"job-1\",rank=\"0\"} 100\n"), std::string::npos);
  // Nor the end of the job.
  metrics.reset();
  EXPECT_EQ(Page().find("job-1"), std::string::npos);
}

TEST_F(TrainMetricsTest, ScrapesMayComeWhileAStepIsRecorded) {
  std::atomic<bool> done = false;
  std::thread scraper([&] {
    while (!done) Page();
  });
  for (int job = 0; job < 5; ++job) {
    counts_ = {};
    const auto metrics = Make();
    for (int i = 0; i < 100; ++i) Step(*metrics);
  }
  done = true;
  scraper.join();
  EXPECT_EQ(Page().find("job-1"), std::string::npos);
}

}  // namespace
}  // namespace sherd
