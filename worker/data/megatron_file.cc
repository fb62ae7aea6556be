#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/megatron_index.h"
#include "worker/data/open_formats.h"

namespace sherd {
namespace {

class MegatronFile final : public TokenFile {
 public:
  MegatronFile(MappedFile data, MegatronIndex index)
      : data_(std::move(data)), index_(std::move(index)) {}

  const std::string& name() const override { return data_.name(); }
  int64_t tokens() const override { return index_.tokens(); }
  int64_t documents() const override { return index_.documents(); }
  int64_t bytes() const override { return data_.bytes() + index_.bytes(); }
  IdType type() const override { return index_.type(); }

  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const override {
    while (count > 0) {
      SHERD_ASSIGN_OR_RETURN(const MegatronIndex::Sequences sequences, index_.Around(begin));
      int64_t first = sequences.first_token;
      for (size_t i = 0; i < sequences.lengths.size() && count > 0; ++i) {
        const int64_t skipped = begin - first;
        const int64_t part = std::min(sequences.lengths[i] - skipped, count);
        first += sequences.lengths[i];
        if (part <= 0) continue;
        SHERD_RETURN_IF_ERROR(
            ReadIds(data_, type(), sequences.pointers[i] + skipped * WidthOf(type()), part, out));
        begin += part;
        out += part;
        count -= part;
      }
    }
    return absl::OkStatus();
  }

 private:
  const MappedFile data_;
  const MegatronIndex index_;
};

}  // namespace

std::string MegatronPrefix(const std::string& path) {
  const bool has_ending = absl::EndsWith(path, ".bin") || absl::EndsWith(path, ".idx");
  return has_ending ? path.substr(0, path.size() - 4) : path;
}

absl::StatusOr<std::unique_ptr<TokenFile>> OpenMegatronFile(const std::string& root,
                                                            const std::string& path) {
  const std::string prefix = MegatronPrefix(path);
  SHERD_ASSIGN_OR_RETURN(MappedFile index_file, MappedFile::Open(root, prefix + ".idx"));
  SHERD_ASSIGN_OR_RETURN(MappedFile data, MappedFile::Open(root, prefix + ".bin"));
  SHERD_ASSIGN_OR_RETURN(MegatronIndex index,
                         MegatronIndex::Open(std::move(index_file), data.bytes()));
  return std::make_unique<MegatronFile>(std::move(data), std::move(index));
}

}  // namespace sherd
