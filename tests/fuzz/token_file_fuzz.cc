// Files of tokens. The first byte says which format the rest claims to have; of Megatron's pairs it
// is the index, beside 64 bytes of ids.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/mapped_file.h"
#include "worker/data/megatron_index.h"
#include "worker/data/token_file.h"

namespace {

constexpr int64_t kMegatronBytes = 64;
constexpr int64_t kMostRead = 1 << 16;

// A file without a name, which has a path as long as this lives.
class MemoryFile {
 public:
  explicit MemoryFile(absl::string_view bytes) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    FUZZ_CHECK(write(descriptor_, bytes.data(), bytes.size()) ==
               static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { close(descriptor_); }
  std::string path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

 private:
  const int descriptor_;
};

void ReadIndex(const MemoryFile& file) {
  absl::StatusOr<sherd::MappedFile> mapped = sherd::MappedFile::Open("", file.path());
  if (!mapped.ok()) return;
  const auto index = sherd::MegatronIndex::Open(*std::move(mapped), kMegatronBytes);
  if (!index.ok()) return;
  FUZZ_CHECK(index->tokens() >= 1);
  for (const int64_t token : {int64_t{0}, index->tokens() / 2, index->tokens() - 1}) {
    const auto around = index->Around(token);
    FUZZ_CHECK(around.ok());
    int64_t end = around->first_token;
    for (const int32_t length : around->lengths) end += length;
    FUZZ_CHECK(around->first_token <= token && token < end);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const MemoryFile file(sherd::AsText(data + 1, size - 1));
  constexpr sherd::TokenFormat kFormats[] = {sherd::TokenFormat::kText, sherd::TokenFormat::kJsonl,
                                             sherd::TokenFormat::kTokensU16,
                                             sherd::TokenFormat::kLlmc};
  if (data[0] % 5 == 4) {
    ReadIndex(file);
    return 0;
  }
  const auto tokens = sherd::OpenTokenFile("", file.path(), kFormats[data[0] % 5]);
  if (!tokens.ok()) {
    FUZZ_CHECK(!tokens.status().message().empty());
    return 0;
  }
  FUZZ_CHECK((*tokens)->tokens() >= 1);
  std::vector<int32_t> ids(std::min((*tokens)->tokens(), kMostRead));
  const int64_t count = static_cast<int64_t>(ids.size());
  if ((*tokens)->Read((*tokens)->tokens() - count, count, ids.data()).ok()) {
    sherd::CheckIds(**tokens, 0, ids.data(), count, 50257).IgnoreError();
  }
  return 0;
}
