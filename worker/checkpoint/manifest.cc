#include "worker/checkpoint/manifest.h"

#include <xxhash.h>

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "worker/checkpoint/bounded_json.h"
#include "worker/checkpoint/piece_name.h"

namespace sherd {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "sherd-checkpoint";
constexpr int64_t kVersion = 2;
// Without blocks of columns.
constexpr int64_t kOldestVersion = 1;
constexpr int64_t kElementBytes = 4;
constexpr int64_t kMaxModelSize = 1 << 24;

std::string Hex(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

// The spelling of Hex only, so that a changed digit never goes unnoticed.
bool ParseHex(absl::string_view text, uint64_t& value) {
  return absl::SimpleHexAtoi(text, &value) && Hex(value) == text;
}

std::string ChecksumOf(const Json& json) {
  const std::string text = json.dump();
  return Hex(XXH3_64bits(text.data(), text.size()));
}

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the manifest ", what));
}

bool IsSize(const Json& value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

// Reads members of an object; remembers the first that is missing or of another type.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {
    if (!object.is_object()) Fail("(an object)");
  }
  int64_t Size(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return 0;
    if (!IsSize(*value)) return Fail(key), 0;
    return value->get<int64_t>();
  }
  std::string String(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) return Fail(key), "";
    return value->get<std::string>();
  }
  double Real(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return 0;
    if (!value->is_number()) return Fail(key), 0;
    return value->get<double>();
  }
  bool Bool(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return Fail(key), false;
    return value->get<bool>();
  }
  const Json& Array(const char* key) {
    static const Json kEmpty = Json::array();
    const Json* value = Find(key);
    if (value == nullptr) return kEmpty;
    if (!value->is_array()) return Fail(key), kEmpty;
    return *value;
  }
  const Json& Object(const char* key) {
    static const Json kEmpty = Json::object();
    const Json* value = Find(key);
    if (value == nullptr) return kEmpty;
    if (!value->is_object()) return Fail(key), kEmpty;
    return *value;
  }
  absl::Status status() const {
    return wrong_.empty() ? absl::OkStatus()
                          : Wrong(absl::StrCat("lacks a valid \"", wrong_, "\""));
  }

 private:
  const Json* Find(const char* key) {
    if (!wrong_.empty()) return nullptr;
    const auto found = object_.find(key);
    if (found == object_.end()) return Fail(key), nullptr;
    return &*found;
  }
  void Fail(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }

  const Json& object_;
  std::string wrong_;
};

Json ModelJson(const ModelShape& model) {
  const bool llama = model.arch == Architecture::kLlama;
  Json json = {{"arch", llama ? "llama" : "gpt2"},
               {"layers", model.layers},
               {"hidden", model.hidden},
               {"heads", model.heads},
               {"kv_heads", model.kv_heads},
               {"ffn", model.ffn},
               {"vocab", model.vocab},
               {"context", model.context},
               {"tie_embeddings", model.tie_embeddings}};
  if (!llama) return json;
  json["norm_eps"] = model.norm_eps;
  json["rotary"] = {{"theta", model.rotary.theta},
                    {"factor", model.rotary.factor},
                    {"low_freq_factor", model.rotary.low_freq_factor},
                    {"high_freq_factor", model.rotary.high_freq_factor},
                    {"original_context", model.rotary.original_context}};
  return json;
}

// What only a Llama has, and the rules that only it obeys.
absl::Status ParseLlama(const Json& json, ModelShape& model) {
  Members members(json);
  model.norm_eps = members.Real("norm_eps");
  const Json& rotary_json = members.Object("rotary");
  SHERD_RETURN_IF_ERROR(members.status());
  Members rotary(rotary_json);
  model.rotary.theta = rotary.Real("theta");
  model.rotary.factor = rotary.Real("factor");
  model.rotary.low_freq_factor = rotary.Real("low_freq_factor");
  model.rotary.high_freq_factor = rotary.Real("high_freq_factor");
  model.rotary.original_context = rotary.Size("original_context");
  SHERD_RETURN_IF_ERROR(rotary.status());
  if (model.heads % model.kv_heads != 0 || model.head_size() % 2 != 0) {
    return Wrong("describes heads that do not fit each other");
  }
  if (!(model.norm_eps > 0) || !(model.rotary.theta > 0) || !(model.rotary.factor >= 1) ||
      !(model.rotary.low_freq_factor < model.rotary.high_freq_factor) ||
      model.rotary.original_context < 1) {
    return Wrong("describes an impossible norm or rotary embedding");
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelShape> ParseModel(const Json& json) {
  Members members(json);
  ModelShape model;
  const std::string arch = members.String("arch");
  model.layers = members.Size("layers");
  model.hidden = members.Size("hidden");
  model.heads = members.Size("heads");
  model.kv_heads = members.Size("kv_heads");
  model.ffn = members.Size("ffn");
  model.vocab = members.Size("vocab");
  model.context = members.Size("context");
  model.tie_embeddings = members.Bool("tie_embeddings");
  SHERD_RETURN_IF_ERROR(members.status());
  if (arch != "gpt2" && arch != "llama")
    return Wrong(absl::StrCat("names the unknown architecture \"", arch, "\""));
  // So that no later product of two sizes overflows.
  for (const int64_t size : {model.layers, model.hidden, model.heads, model.kv_heads, model.ffn,
                             model.vocab, model.context}) {
    if (size < 1 || size > kMaxModelSize) return Wrong("describes an impossible model");
  }
  if (model.hidden % model.heads != 0) return Wrong("describes heads that do not divide hidden");
  if (arch == "llama") {
    model.arch = Architecture::kLlama;
    SHERD_RETURN_IF_ERROR(ParseLlama(json, model));
  } else if (model.kv_heads != model.heads) {
    return Wrong("describes heads that do not fit each other");
  }
  return model;
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
  Members members(json);
  ShardFileInfo shard;
  shard.file = members.String("file");
  shard.bytes = members.Size("bytes");
  const std::string checksum = members.String("xxh3");
  SHERD_RETURN_IF_ERROR(members.status());
  if (!IsPlainName(shard.file)) {
    return Wrong(absl::StrCat("names the file \"", shard.file, "\", outside of its directory"));
  }
  if (!ParseHex(checksum, shard.xxh3)) {
    return Wrong(absl::StrCat("has a malformed checksum of ", shard.file));
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
    if (piece.columns != all) json["columns"] = {piece.columns.begin, piece.columns.end};
    pieces.push_back(std::move(json));
  }
  return {{"name", tensor.name},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"pieces", std::move(pieces)}};
}

absl::StatusOr<StoredPiece> ParsePiece(const Json& json, const StoredTensor& tensor) {
  Members members(json);
  StoredPiece piece;
  piece.begin = members.Size("begin");
  piece.end = members.Size("end");
  piece.shard = members.Size("shard");
  piece.offset = members.Size("offset");
  SHERD_RETURN_IF_ERROR(members.status());
  piece.columns = {0, ColumnsOf(tensor.shape)};
  const auto columns = json.find("columns");
  if (columns == json.end()) return piece;
  if (!columns->is_array() || columns->size() != 2 || !IsSize((*columns)[0]) ||
      !IsSize((*columns)[1])) {
    return Wrong(absl::StrCat("gives a piece of \"", tensor.name, "\" no valid \"columns\""));
  }
  piece.columns = {(*columns)[0].get<int64_t>(), (*columns)[1].get<int64_t>()};
  return piece;
}

absl::StatusOr<StoredTensor> ParseTensor(const Json& json) {
  Members members(json);
  StoredTensor tensor;
  tensor.name = members.String("name");
  tensor.dtype = members.String("dtype");
  const Json& shape = members.Array("shape");
  const Json& pieces = members.Array("pieces");
  SHERD_RETURN_IF_ERROR(members.status());
  if (tensor.dtype != "F32") {
    return Wrong(absl::StrCat("gives \"", tensor.name, "\" the unknown dtype ", tensor.dtype));
  }
  tensor.elements = 1;
  for (const Json& extent : shape) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > uint64_t{1} << 48 ||
        __builtin_mul_overflow(tensor.elements, extent.get<int64_t>(), &tensor.elements) ||
        tensor.elements > int64_t{1} << 56) {
      return Wrong(absl::StrCat("gives \"", tensor.name, "\" an impossible shape"));
    }
    tensor.shape.push_back(extent.get<int64_t>());
  }
  for (const Json& piece : pieces) {
    SHERD_ASSIGN_OR_RETURN(tensor.pieces.emplace_back(), ParsePiece(piece, tensor));
  }
  return tensor;
}

absl::StatusOr<Manifest> ParseCheckpoint(const Json& json) {
  Members members(json);
  const std::string format = members.String("format");
  const int64_t version = members.Size("version");
  Manifest manifest;
  manifest.info.job_id = members.String("job");
  manifest.info.step = members.Size("step");
  manifest.info.epoch = members.Size("epoch");
  manifest.info.tokenizer = members.String("tokenizer");
  const Json& model = members.Object("model");
  const Json& shards = members.Array("shards");
  const Json& tensors = members.Array("tensors");
  SHERD_RETURN_IF_ERROR(members.status());
  if (format != kFormat || version < kOldestVersion || version > kVersion) {
    return Wrong(absl::StrCat("is of format ", format, " ", version, "; this program reads ",
                              kFormat, " ", kOldestVersion, " to ", kVersion));
  }
  SHERD_ASSIGN_OR_RETURN(manifest.info.model, ParseModel(model));
  int64_t room = 0;
  for (const Json& shard : shards) {
    SHERD_ASSIGN_OR_RETURN(manifest.shards.emplace_back(), ParseShard(shard));
    if (__builtin_add_overflow(room, manifest.shards.back().bytes, &room)) {
      return Wrong("claims files of an impossible size");
    }
  }
  for (const Json& tensor : tensors) {
    SHERD_ASSIGN_OR_RETURN(manifest.tensors.emplace_back(), ParseTensor(tensor));
    SHERD_RETURN_IF_ERROR(CheckPieces(manifest.tensors.back(), manifest.shards));
    // Bounds what a reader allocates by what is really there.
    room -= manifest.tensors.back().elements * kElementBytes;
    if (room < 0) return Wrong("holds more tensors than its files have room for");
  }
  return manifest;
}

}  // namespace

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
                     {"job", manifest.info.job_id},
                     {"step", manifest.info.step},
                     {"epoch", manifest.info.epoch},
                     {"tokenizer", manifest.info.tokenizer},
                     {"model", ModelJson(manifest.info.model)},
                     {"shards", std::move(shards)},
                     {"tensors", std::move(tensors)}};
  const std::string checksum = ChecksumOf(checkpoint);
  return Json{{"checkpoint", std::move(checkpoint)}, {"xxh3", checksum}}.dump(1) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  SHERD_ASSIGN_OR_RETURN(const Json json, ParseBoundedJson(text, JsonLimits()));
  Members members(json);
  const Json& checkpoint = members.Object("checkpoint");
  const std::string checksum = members.String("xxh3");
  SHERD_RETURN_IF_ERROR(members.status());
  if (ChecksumOf(checkpoint) != checksum) {
    return absl::DataLossError("the manifest's checksum is wrong: it was damaged or edited");
  }
  return ParseCheckpoint(checkpoint);
}

}  // namespace sherd
