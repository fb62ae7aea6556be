#include "worker/train/vote.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

// A code, a text and its end.
constexpr size_t kWordBytes = 4096 + 2;

constexpr char kFailedRank[] = "sherd/failed-rank";

}  // namespace

absl::StatusOr<std::vector<std::string>> Vote(RankMesh& mesh,
                                              const absl::StatusOr<std::string>& mine) {
  std::vector<char> word(kWordBytes, '\0');
  word[0] = static_cast<char>(mine.status().code());
  const std::string text = mine.ok() ? *mine : std::string(mine.status().message());
  std::memcpy(word.data() + 1, text.data(), std::min(text.size(), kWordBytes - 2));
  std::vector<char> words(kWordBytes * static_cast<size_t>(mesh.size()));
  SHERD_RETURN_IF_ERROR(mesh.Exchange(word.data(), words.data(), static_cast<int64_t>(kWordBytes)));
  std::vector<std::string> texts;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const char* const said = words.data() + kWordBytes * static_cast<size_t>(rank);
    const auto code = static_cast<absl::StatusCode>(said[0]);
    if (code != absl::StatusCode::kOk) {
      // Whoever ends first aborts the communicator: not before all have heard the vote.
      mesh.Barrier().IgnoreError();
      absl::Status failed(code, absl::StrCat("rank ", rank, ": ", said + 1));
      failed.SetPayload(kFailedRank, absl::Cord(absl::StrCat(rank)));
      return failed;
    }
    texts.emplace_back(said + 1);
  }
  return texts;
}

absl::Status Vote(RankMesh& mesh, const absl::Status& mine) {
  return Vote(mesh, mine.ok() ? absl::StatusOr<std::string>("") : mine).status();
}

int FailedRankOf(const absl::Status& error) {
  const absl::optional<absl::Cord> said = error.GetPayload(kFailedRank);
  int rank = -1;
  return said.has_value() && absl::SimpleAtoi(std::string(*said), &rank) ? rank : -1;
}

}  // namespace sherd
