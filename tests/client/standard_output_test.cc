#include "client/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <ostream>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace sherd {
namespace {

// More than any pipe of the tests holds.
const std::string kTooMuch(1 << 20, 'x');

class PatientBufferTest : public ::testing::Test {
 protected:
  PatientBufferTest() { EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0); }
  ~PatientBufferTest() override {
    for (const int fd : pipe_) close(fd);
  }

  std::string Read(size_t bytes) {
    std::string text(bytes, '\0');
    size_t taken = 0;
    while (taken < bytes) {
      const ssize_t some = read(pipe_[0], text.data() + taken, bytes - taken);
      if (some <= 0) break;
      taken += static_cast<size_t>(some);
    }
    text.resize(taken);
    return text;
  }

  int pipe_[2] = {-1, -1};
};

TEST_F(PatientBufferTest, WaitsForASlowReaderAndLosesNothing) {
  PatientBuffer buffer(pipe_[1]);
  std::string seen;
  std::thread reader([&] { seen = Read(kTooMuch.size()); });
  std::ostream(&buffer) << kTooMuch << std::flush;
  reader.join();
  EXPECT_EQ(seen, kTooMuch);
}

// Ctrl-C must end a run whose output nobody reads.
TEST_F(PatientBufferTest, GivesUpAReaderThatTakesNothingOnceItLosesPatience) {
  PatientBuffer buffer(pipe_[1]);
  std::ostream stream(&buffer);
  absl::Notification dropped;
  std::thread writer([&] {
    stream << kTooMuch << std::flush;
    stream << kTooMuch << std::flush;
    dropped.Notify();
  });
  EXPECT_FALSE(dropped.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
  buffer.LosePatience(absl::Milliseconds(1));
  EXPECT_TRUE(dropped.WaitForNotificationWithTimeout(absl::Seconds(20)));
  if (!dropped.HasBeenNotified()) close(pipe_[0]);
  writer.join();
  EXPECT_TRUE(stream.good());
  EXPECT_FALSE(buffer.failed());
}

TEST_F(PatientBufferTest, AReaderThatReadsIsHeardToTheEndWithoutPatience) {
  PatientBuffer buffer(pipe_[1]);
  buffer.LosePatience(absl::Seconds(20));
  std::string seen;
  std::thread reader([&] { seen = Read(kTooMuch.size()); });
  std::ostream(&buffer) << kTooMuch << std::flush;
  reader.join();
  EXPECT_EQ(seen, kTooMuch);
}

TEST(PatientBuffer, AFullDiskIsAnError) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  PatientBuffer buffer(full);
  std::ostream stream(&buffer);
  stream << "text" << std::flush;
  EXPECT_FALSE(stream.good());
  EXPECT_TRUE(buffer.failed());
  close(full);
}

}  // namespace
}  // namespace sherd
