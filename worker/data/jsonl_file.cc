#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/jsonl_lines.h"
#include "worker/data/open_formats.h"

namespace sherd {
namespace {

// So many bytes of lines are parsed to find one in them.
constexpr int64_t kBlockBytes = 16 << 10;

// Some lines.
struct Block {
  int64_t byte;
  int64_t token;
};

class JsonlFile final : public TokenFile {
 public:
  explicit JsonlFile(MappedFile file) : file_(std::move(file)) {}

  // Finds out where the texts are.
  absl::Status Scan() {
    JsonlLines lines(file_, 0, file_.bytes());
    std::string text;
    while (true) {
      SHERD_ASSIGN_OR_RETURN(const bool found, lines.Next(text));
      if (!found) break;
      if (blocks_.empty() || lines.line_start() - blocks_.back().byte >= kBlockBytes) {
        blocks_.push_back({lines.line_start(), tokens_});
      }
      tokens_ += static_cast<int64_t>(text.size());
      ++documents_;
    }
    if (tokens_ > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        name(), " holds no text; each line must be a JSON object, as in {\"text\": \"…\"}"));
  }

  const std::string& name() const override { return file_.name(); }
  int64_t tokens() const override { return tokens_; }
  int64_t documents() const override { return documents_; }
  int64_t bytes() const override { return file_.bytes(); }
  IdType type() const override { return IdType::kU8; }

  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    if (count == 0) return absl::OkStatus();
    const auto block =
        std::upper_bound(blocks_.begin(), blocks_.end(), begin,
                         [](int64_t token, const Block& b) { return token < b.token; }) -
        1;
    JsonlLines lines(file_, block->byte, file_.bytes());
    int64_t skipped = begin - block->token;
    std::string text;
    while (count > 0) {
      const absl::StatusOr<bool> found = lines.Next(text);
      if (absl::IsInvalidArgument(found.status())) return Changed(found.status().message());
      if (!found.ok()) return found.status();
      if (!*found) return Changed("it has fewer tokens");
      const auto size = static_cast<int64_t>(text.size());
      const int64_t part = std::min(size - skipped, count);
      if (part <= 0) {
        skipped -= size;
        continue;
      }
      const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data()) + skipped;
      out = std::copy(bytes, bytes + part, out);
      count -= part;
      skipped = 0;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Changed(absl::string_view how) const {
    return absl::DataLossError(absl::StrCat(name(), " has changed since it was opened: ", how,
                                            "; leave data files as they are while a job runs"));
  }

  const MappedFile file_;
  std::vector<Block> blocks_;
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> OpenJsonlFile(MappedFile file) {
  auto jsonl = std::make_unique<JsonlFile>(std::move(file));
  SHERD_RETURN_IF_ERROR(jsonl->Scan());
  return jsonl;
}

}  // namespace sherd
