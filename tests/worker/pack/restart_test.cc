#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/worker/pack/packing.h"
#include "worker/pack/piece_store.h"

namespace sherd {
namespace {

using testing::HasSubstr;

class RestartTest : public testing::Test {
 protected:
  RestartTest() {
    packing_.AddFile("a", SomeText(11, 400'000));
    packing_.options.piece_bytes = 2000;
    packing_.options.out = packing_.root / "undisturbed";
    SHERD_CHECK(packing_.Run().ok());
    undisturbed_ = ReadFile(packing_.options.out);
    packing_.options.out = packing_.root / "out";
  }
  std::string Piece(const std::string& name) const {
    return packing_.options.out + ".pieces/" + name;
  }

  Packing packing_;
  std::string undisturbed_;
};

TEST_F(RestartTest, GoesOnFromThePiecesThatAreThere) {
  // Where the fourth piece is to be written.
  std::filesystem::create_directories(Piece("00000003.part"));
  EXPECT_THAT(packing_.Error(), HasSubstr("00000003.part"));
  std::filesystem::remove(Piece("00000003.part"));
  // One that was cut short counts for nothing, as does the rest of a write.
  std::filesystem::resize_file(Piece("00000001"),
                               std::filesystem::file_size(Piece("00000001")) - 2);
  packing_.root.Write("out.pieces/00000007.part", "rest");
  packing_.options.threads = 2;
  const auto summary = packing_.Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->found_pieces, 2u);
  EXPECT_EQ(ReadFile(packing_.options.out), undisturbed_);
  EXPECT_FALSE(std::filesystem::exists(Piece("")));
}

TEST_F(RestartTest, AKilledRunStartedAgainGivesTheSameBytes) {
  for (const char* last : {"00000002", "00000030", "00000090"}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      packing_.options.threads = 2;
      packing_.Run().IgnoreError();
      _exit(0);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!std::filesystem::exists(Piece(last)) && waitpid(child, nullptr, WNOHANG) == 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_FALSE(std::filesystem::exists(packing_.options.out)) << "it was not killed in time";
  }
  const auto summary = packing_.Run();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_GE(summary->found_pieces, 80u);
  EXPECT_LT(summary->found_pieces, summary->pieces);
  EXPECT_EQ(ReadFile(packing_.options.out), undisturbed_);
}

TEST_F(RestartTest, PiecesOfAnotherRunAreLeftAlone) {
  std::filesystem::create_directories(Piece("00000003.part"));
  EXPECT_THAT(packing_.Error(), HasSubstr("00000003.part"));
  packing_.options.special_as_text = true;
  EXPECT_THAT(packing_.Error(), HasSubstr("was left by a run with another tokenizer"));
  EXPECT_TRUE(std::filesystem::exists(Piece("00000002")));
}

TEST_F(RestartTest, TwoRunsDoNotMix) {
  const auto store = PieceStore::Open(packing_.options.out, "plan", 2);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(packing_.Error(), HasSubstr("another process works in"));
}

}  // namespace
}  // namespace sherd
