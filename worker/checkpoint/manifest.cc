#include "worker/checkpoint/manifest.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/bounded_json.h"
#include "common/status_macros.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/json_members.h"
#include "worker/checkpoint/model_json.h"
#include "worker/checkpoint/piece_name.h"
#include "worker/checkpoint/training_json.h"

namespace sherd {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "sherd-checkpoint";
constexpr absl::string_view kWeights = "weights";
constexpr absl::string_view kTraining = "training";
constexpr int64_t kVersion = 3;
// Without checksums of pieces, and without what training needs.
constexpr int64_t kLastWithoutTraining = 2;
// Without blocks of columns.
constexpr int64_t kOldestVersion = 1;
constexpr int64_t kElementBytes = 4;
constexpr int64_t kMaxValues = 1 << 23;

std::string Hex(uint64_t value) { return FormatChecksums({value}); }

bool ParseHex(absl::string_view text, uint64_t& value) {
  std::vector<uint64_t> values;
  if (!ParseChecksums(text, values) || values.size() != 1) return false;
  value = values.front();
  return true;
}

std::string ChecksumOf(const Json& json) {
  const std::string text = json.dump();
  return Hex(Checksum(text));
}

Json ShardJson(const ShardFileInfo& shard) {
  return {{"file", shard.file}, {"bytes", shard.bytes}, {"xxh3", Hex(shard.xxh3)}};
}

// A file of the checkpoint's own directory.
bool IsPlainName(absl::string_view file) {
  return !file.empty() && file.front() != '.' && file.find('/') == absl::string_view::npos &&
         file.find('\0') == absl::string_view::npos;
}

absl::StatusOr<ShardFileInfo> ParseShard(const Json& json) {
  JsonMembers members(json);
  ShardFileInfo shard;
  shard.file = members.String("file");
  shard.bytes = members.Size("bytes");
  const std::string checksum = members.String("xxh3");
  SHERD_RETURN_IF_ERROR(members.status());
  if (!IsPlainName(shard.file)) {
    return WrongManifest(
        absl::StrCat("names the file \"", shard.file, "\", outside of its directory"));
  }
  if (!ParseHex(checksum, shard.xxh3)) {
    return WrongManifest(absl::StrCat("has a malformed checksum of ", shard.file));
  }
  return shard;
}

Json TensorJson(const StoredTensor& tensor) {
  const ElementRange all{0, ColumnsOf(tensor.shape)};
  Json pieces = Json::array();
  for (const StoredPiece& piece : tensor.pieces) {
    Json json = {{"begin", piece.begin},
                 {"end", piece.end},
                 {"shard", piece.shard},
                 {"offset", piece.offset}};
    if (!piece.xxh3.empty()) json["xxh3"] = FormatChecksums(piece.xxh3);
    if (piece.columns != all) json["columns"] = {piece.columns.begin, piece.columns.end};
    pieces.push_back(std::move(json));
  }
  return {{"name", tensor.name},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"pieces", std::move(pieces)}};
}

absl::StatusOr<ElementRange> ParseColumns(const Json& json, const StoredTensor& tensor) {
  const auto columns = json.find("columns");
  if (columns == json.end()) return ElementRange{0, ColumnsOf(tensor.shape)};
  if (!columns->is_array() || columns->size() != 2 || !IsJsonSize((*columns)[0]) ||
      !IsJsonSize((*columns)[1])) {
    return WrongManifest(
        absl::StrCat("gives a piece of \"", tensor.name, "\" no valid \"columns\""));
  }
  return ElementRange{(*columns)[0].get<int64_t>(), (*columns)[1].get<int64_t>()};
}

absl::StatusOr<StoredPiece> ParsePiece(const Json& json, const StoredTensor& tensor,
                                       int64_t version) {
  JsonMembers members(json);
  StoredPiece piece;
  piece.begin = members.Size("begin");
  piece.end = members.Size("end");
  piece.shard = members.Size("shard");
  piece.offset = members.Size("offset");
  const std::string checksums =
      version > kLastWithoutTraining ? members.String("xxh3") : std::string();
  SHERD_RETURN_IF_ERROR(members.status());
  SHERD_ASSIGN_OR_RETURN(piece.columns, ParseColumns(json, tensor));
  if (version <= kLastWithoutTraining) return piece;
  if (!ParseChecksums(checksums, piece.xxh3) || piece.xxh3.empty()) {
    return WrongManifest(absl::StrCat("has malformed checksums of \"", tensor.name, "\""));
  }
  return piece;
}

absl::StatusOr<StoredTensor> ParseTensor(const Json& json, int64_t version) {
  JsonMembers members(json);
  StoredTensor tensor;
  tensor.name = members.String("name");
  tensor.dtype = members.String("dtype");
  const Json& shape = members.Array("shape");
  const Json& pieces = members.Array("pieces");
  SHERD_RETURN_IF_ERROR(members.status());
  if (tensor.dtype != "F32") {
    return WrongManifest(
        absl::StrCat("gives \"", tensor.name, "\" the unknown dtype ", tensor.dtype));
  }
  tensor.elements = 1;
  for (const Json& extent : shape) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > uint64_t{1} << 48 ||
        __builtin_mul_overflow(tensor.elements, extent.get<int64_t>(), &tensor.elements) ||
        tensor.elements > int64_t{1} << 56) {
      return WrongManifest(absl::StrCat("gives \"", tensor.name, "\" an impossible shape"));
    }
    tensor.shape.push_back(extent.get<int64_t>());
  }
  for (const Json& piece : pieces) {
    SHERD_ASSIGN_OR_RETURN(tensor.pieces.emplace_back(), ParsePiece(piece, tensor, version));
  }
  return tensor;
}

// What the checkpoint is of; `version` is one that this program reads.
absl::StatusOr<CheckpointInfo> ParseInfo(const Json& json, int64_t version) {
  JsonMembers members(json);
  CheckpointInfo info;
  info.job_id = members.String("job");
  info.step = members.Size("step");
  info.epoch = members.Size("epoch");
  info.tokenizer = members.String("tokenizer");
  const Json& model = members.Object("model");
  const std::string kind =
      version > kLastWithoutTraining ? members.String("kind") : std::string(kWeights);
  SHERD_RETURN_IF_ERROR(members.status());
  SHERD_ASSIGN_OR_RETURN(info.model, ParseModel(model));
  if (kind == kWeights) return info;
  if (kind != kTraining) {
    return WrongManifest(absl::StrCat("is of the unknown kind \"", kind, "\""));
  }
  const Json& training = members.Object("training");
  SHERD_RETURN_IF_ERROR(members.status());
  SHERD_ASSIGN_OR_RETURN(info.training, ParseTraining(training));
  return info;
}

absl::StatusOr<Manifest> ParseCheckpoint(const Json& json) {
  JsonMembers members(json);
  const std::string format = members.String("format");
  const int64_t version = members.Size("version");
  const Json& shards = members.Array("shards");
  const Json& tensors = members.Array("tensors");
  SHERD_RETURN_IF_ERROR(members.status());
  if (format != kFormat || version < kOldestVersion || version > kVersion) {
    return WrongManifest(absl::StrCat("is of format ", format, " ", version,
                                      "; this program reads ", kFormat, " ", kOldestVersion, " to ",
                                      kVersion));
  }
  Manifest manifest;
  SHERD_ASSIGN_OR_RETURN(manifest.info, ParseInfo(json, version));
  int64_t room = 0;
  for (const Json& shard : shards) {
    SHERD_ASSIGN_OR_RETURN(manifest.shards.emplace_back(), ParseShard(shard));
    if (__builtin_add_overflow(room, manifest.shards.back().bytes, &room)) {
      return WrongManifest("claims files of an impossible size");
    }
  }
  for (const Json& tensor : tensors) {
    SHERD_ASSIGN_OR_RETURN(manifest.tensors.emplace_back(), ParseTensor(tensor, version));
    SHERD_RETURN_IF_ERROR(CheckPieces(manifest.tensors.back(), manifest.shards));
    // Bounds what a reader allocates by what is really there.
    room -= manifest.tensors.back().elements * kElementBytes;
    if (room < 0) return WrongManifest("holds more tensors than its files have room for");
  }
  return manifest;
}

}  // namespace

absl::string_view KindOf(const CheckpointInfo& info) {
  return info.training.has_value() ? kTraining : kWeights;
}

std::string ShardFileInfo::Serialize() const {
  return absl::StrCat(file, " ", bytes, " ", Hex(xxh3));
}

absl::StatusOr<ShardFileInfo> ShardFileInfo::Parse(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  ShardFileInfo shard;
  if (parts.size() != 3 || !IsPlainName(parts[0]) || !absl::SimpleAtoi(parts[1], &shard.bytes) ||
      shard.bytes < 0 || !ParseHex(parts[2], shard.xxh3)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" describes no shard file"));
  }
  shard.file = parts[0];
  return shard;
}

std::string FormatManifest(const Manifest& manifest) {
  Json shards = Json::array();
  for (const ShardFileInfo& shard : manifest.shards) shards.push_back(ShardJson(shard));
  Json tensors = Json::array();
  for (const StoredTensor& tensor : manifest.tensors) tensors.push_back(TensorJson(tensor));
  Json checkpoint = {{"format", kFormat},
                     {"version", kVersion},
                     {"kind", std::string(KindOf(manifest.info))},
                     {"job", manifest.info.job_id},
                     {"step", manifest.info.step},
                     {"epoch", manifest.info.epoch},
                     {"tokenizer", manifest.info.tokenizer},
                     {"model", ModelJson(manifest.info.model)},
                     {"shards", std::move(shards)},
                     {"tensors", std::move(tensors)}};
  if (manifest.info.training) checkpoint["training"] = TrainingJson(*manifest.info.training);
  const std::string checksum = ChecksumOf(checkpoint);
  return Json{{"checkpoint", std::move(checkpoint)}, {"xxh3", checksum}}.dump(1) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  SHERD_ASSIGN_OR_RETURN(const Json json, ParseBoundedJson(text, {.values = kMaxValues}));
  JsonMembers members(json);
  const Json& checkpoint = members.Object("checkpoint");
  const std::string checksum = members.String("xxh3");
  SHERD_RETURN_IF_ERROR(members.status());
  if (ChecksumOf(checkpoint) != checksum) {
    return absl::DataLossError("the manifest's checksum is wrong: it was damaged or edited");
  }
  return ParseCheckpoint(checkpoint);
}

}  // namespace sherd
