#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bounded_json.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr absl::string_view kMetadata = "__metadata__";

absl::Status Wrong(absl::string_view tensor, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor, "\" ", what));
}

// A non-negative integer that fits.
bool IsSize(const Json& value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

bool IsSizeArray(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), IsSize);
}

absl::StatusOr<int64_t> BytesOf(const SafetensorsEntry& entry) {
  const absl::StatusOr<int64_t> element = SafetensorsElementBytes(entry.dtype);
  if (!element.ok()) return Wrong(entry.name, element.status().message());
  int64_t bytes = *element;
  for (const int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return Wrong(entry.name, "has a shape whose size overflows");
    }
  }
  return bytes;
}

absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& name, const Json& value,
                                            int64_t header_bytes, int64_t file_bytes) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    return Wrong(name, "does not have dtype, shape and data_offsets");
  }
  const Json& offsets = value["data_offsets"];
  if (!value["dtype"].is_string() || !IsSizeArray(value["shape"]) || !IsSizeArray(offsets) ||
      offsets.size() != 2) {
    return Wrong(name, "has a dtype, shape or data_offsets of the wrong type");
  }
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = value["dtype"].get<std::string>();
  entry.shape = value["shape"].get<std::vector<int64_t>>();
  const auto begin = offsets[0].get<int64_t>();
  const auto end = offsets[1].get<int64_t>();
  if (begin > end || end > file_bytes - header_bytes) {
    return Wrong(name, absl::StrCat("lies at bytes ", begin, " to ", end, " of ",
                                    file_bytes - header_bytes, " bytes of data"));
  }
  entry.offset = header_bytes + begin;
  SHERD_ASSIGN_OR_RETURN(entry.bytes, BytesOf(entry));
  if (entry.bytes != end - begin) {
    return Wrong(
        name, absl::StrCat("has ", end - begin, " bytes where its shape asks for ", entry.bytes));
  }
  return entry;
}

absl::Status ParseMetadata(const Json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) return absl::InvalidArgumentError("__metadata__ is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("__metadata__ \"", key, "\" is not a string"));
    }
    metadata[key] = text.get<std::string>();
  }
  return absl::OkStatus();
}

absl::Status CheckCoverage(const SafetensorsHeader& header, int64_t file_bytes) {
  int64_t end = header.bytes;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.offset < end) return Wrong(entry.name, "overlaps the one before it");
    if (entry.offset > end) return Wrong(entry.name, "has a gap before it");
    end = entry.offset + entry.bytes;
  }
  if (end != file_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensors end at byte ", end, " but the file has ", file_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> HeaderLength(const std::array<unsigned char, kLengthBytes>& raw,
                                     int64_t file_bytes) {
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | raw[static_cast<size_t>(i)];
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader) ||
      static_cast<int64_t>(length) > file_bytes - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("its header claims ", length, " bytes"));
  }
  return static_cast<int64_t>(length);
}

absl::StatusOr<SafetensorsHeader> ReadHeader(int64_t file_bytes, const ReadAt& read) {
  std::array<unsigned char, kLengthBytes> raw;
  if (file_bytes < kLengthBytes) return absl::InvalidArgumentError("it is shorter than 8 bytes");
  SHERD_RETURN_IF_ERROR(read(0, kLengthBytes, raw.data()));
  SHERD_ASSIGN_OR_RETURN(const int64_t length, HeaderLength(raw, file_bytes));
  std::string text(static_cast<size_t>(length), '\0');
  SHERD_RETURN_IF_ERROR(read(kLengthBytes, length, text.data()));
  return ParseSafetensorsHeader(text, file_bytes);
}

}  // namespace

absl::StatusOr<int64_t> SafetensorsElementBytes(absl::string_view dtype) {
  static constexpr std::pair<absl::string_view, int64_t> kTypes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},     {"I32", 4},
      {"I16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return absl::InvalidArgumentError(absl::StrCat("has the unknown dtype \"", dtype, "\""));
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text,
                                                         int64_t file_bytes) {
  SHERD_ASSIGN_OR_RETURN(const Json json, ParseBoundedJson(text, {.depth = 3}));
  if (!json.is_object()) return absl::InvalidArgumentError("its header is not a JSON object");
  SafetensorsHeader header;
  header.bytes = kLengthBytes + static_cast<int64_t>(text.size());
  for (const auto& [name, value] : json.items()) {
    if (absl::string_view(name) == kMetadata) {
      SHERD_RETURN_IF_ERROR(ParseMetadata(value, header.metadata));
      continue;
    }
    SHERD_ASSIGN_OR_RETURN(SafetensorsEntry entry,
                           ParseEntry(name, value, header.bytes, file_bytes));
    header.entries.push_back(std::move(entry));
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  SHERD_RETURN_IF_ERROR(CheckCoverage(header, file_bytes));
  return header;
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, " is missing or cannot be read"));
  file.seekg(0, std::ios::end);
  const int64_t file_bytes = file.tellg();
  return ReadSafetensorsHeader(path, file_bytes, [&](int64_t offset, int64_t bytes, void* out) {
    if (file.seekg(offset).read(static_cast<char*>(out), bytes)) return absl::OkStatus();
    return absl::DataLossError("its header cannot be read");
  });
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& name, int64_t file_bytes,
                                                        const ReadAt& read) {
  absl::StatusOr<SafetensorsHeader> header = ReadHeader(file_bytes, read);
  if (header.ok()) return header;
  return absl::Status(
      header.status().code(),
      absl::StrCat(name, " is not a valid safetensors file: ", header.status().message()));
}

std::string FormatSafetensorsHeader(const std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json[std::string(kMetadata)] = metadata;
  int64_t begin = 0;
  for (const SafetensorsEntry& entry : entries) {
    const absl::StatusOr<int64_t> bytes = BytesOf(entry);
    SHERD_CHECK(bytes.ok() && !json.contains(entry.name));
    json[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {begin, begin + *bytes}}};
    begin += *bytes;
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string header(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header[i] = static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  }
  return header + text;
}

}  // namespace sherd
