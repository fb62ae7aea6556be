#include "worker/dataset/text_codec.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/roots.h"
#include "worker/tokenizer/tokenizer_json.h"

namespace sherd {
namespace {

constexpr int64_t kBytes = 256;
constexpr TokenId kByteEnd = 0;

}  // namespace

TextCodec::TextCodec(Tokenizer tokenizer)
    : tokenizer_(std::make_shared<const Tokenizer>(std::move(tokenizer))),
      special_(static_cast<size_t>(tokenizer_->vocab()), false) {
  for (const AddedToken& added : tokenizer_->model().added) {
    if (added.special) special_[added.id] = true;
  }
}

absl::StatusOr<TextCodec> TextCodec::Load(const std::string& tokenizer, const std::string& root) {
  if (tokenizer == "bytes") return TextCodec();
  SHERD_ASSIGN_OR_RETURN(const InputFile file, OpenBelow(root, tokenizer));
  if (file.bytes() > kMostTokenizerFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(tokenizer, " has ", file.bytes(),
                                                   " bytes; a tokenizer.json has at most ",
                                                   kMostTokenizerFileBytes));
  }
  std::string json(static_cast<size_t>(file.bytes()), '\0');
  SHERD_RETURN_IF_ERROR(file.Read(0, file.bytes(), json.data()));
  absl::StatusOr<Tokenizer> parsed = ParseTokenizer(json);
  if (parsed.ok()) return TextCodec(*std::move(parsed));
  return absl::Status(parsed.status().code(),
                      absl::StrCat(tokenizer, ": ", parsed.status().message()));
}

int64_t TextCodec::vocab() const { return is_bytes() ? kBytes : tokenizer_->vocab(); }

TextCodec::Writer::Writer(const TextCodec& codec) {
  if (!codec.is_bytes()) encoder_.emplace(*codec.tokenizer_);
}

void TextCodec::Writer::Append(absl::string_view text, std::vector<TokenId>& ids) {
  if (encoder_.has_value()) return encoder_->Append(text, ids);
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
}

std::vector<TokenId> TextCodec::Encode(absl::string_view text) const {
  std::vector<TokenId> ids;
  Writer(*this).Append(text, ids);
  return ids;
}

std::string TextCodec::Decode(TokenId id) const {
  return is_bytes() ? std::string(1, static_cast<char>(id))
                    : std::string(tokenizer_->TokenBytes(id));
}

int64_t TextCodec::TextBytes(TokenId id) const {
  if (is_bytes()) return 1;
  if (id < special_.size() && special_[id]) return 0;
  return static_cast<int64_t>(tokenizer_->TokenBytes(id).size());
}

std::vector<TokenId> TextCodec::Start() const {
  return is_bytes() ? std::vector<TokenId>() : tokenizer_->model().before_text;
}

std::optional<TokenId> TextCodec::End() const {
  if (is_bytes()) return kByteEnd;
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>"}) {
    if (const std::optional<TokenId> end = tokenizer_->FindAdded(name)) return end;
  }
  return std::nullopt;
}

}  // namespace sherd
