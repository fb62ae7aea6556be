#include "worker/pretrained/export_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/piece_name.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/pretrained/weight_files.h"

namespace sherd {
namespace {

std::vector<std::string> FileNames(size_t files) {
  if (files == 1) return {kWeightsFile};
  std::vector<std::string> names;
  for (size_t file = 1; file <= files; ++file) {
    names.push_back(absl::StrFormat("model-%05d-of-%05d.safetensors", file, files));
  }
  return names;
}

}  // namespace

ExportPlan PlanExport(const ModelShape& shape, ElementType type, int64_t shard_bytes) {
  ExportPlan plan;
  std::vector<std::vector<SafetensorsEntry>> entries(1);
  int64_t in_file = 0;
  for (PublishedTensor& tensor : PublishedTensorsOf(shape)) {
    const int64_t bytes = tensor.elements() * BytesOf(type);
    if (in_file > 0 && in_file + bytes > shard_bytes) {
      entries.emplace_back();
      in_file = 0;
    }
    SafetensorsEntry entry;
    entry.name = tensor.name;
    entry.dtype = std::string(SafetensorsNameOf(type));
    entry.shape = tensor.shape;
    entries.back().push_back(std::move(entry));
    // Where the header's end will be is known when the file is complete.
    plan.tensors.push_back({std::move(tensor), entries.size() - 1, in_file});
    in_file += bytes;
    plan.weight_bytes += bytes;
  }
  plan.files = FileNames(entries.size());
  for (const std::vector<SafetensorsEntry>& file : entries) {
    // Without this the common stack does not load a file.
    plan.headers.push_back(FormatSafetensorsHeader(file, {{"format", "pt"}}));
  }
  for (PlacedTensor& placed : plan.tensors) {
    placed.offset += static_cast<int64_t>(plan.headers[placed.file].size());
  }
  return plan;
}

std::string FormatWeightsIndex(const ExportPlan& plan) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (const PlacedTensor& placed : plan.tensors) {
    map[placed.tensor.name] = plan.files[placed.file];
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", plan.weight_bytes}}},
                                        {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

std::vector<ExportChunk> CutIntoChunks(const ExportPlan& plan, int64_t elements) {
  std::vector<ExportChunk> chunks;
  for (size_t index = 0; index < plan.tensors.size(); ++index) {
    const PublishedTensor& tensor = plan.tensors[index].tensor;
    const int64_t all = tensor.elements();
    if (!tensor.transposed) {
      const ElementRange columns{0, ColumnsOf(tensor.shape)};
      for (int64_t begin = 0; begin < all; begin += elements) {
        chunks.push_back({index, columns, begin, std::min(all, begin + elements), begin});
      }
      continue;
    }
    // Rows of the published tensor are columns of ours.
    const int64_t rows = tensor.shape.back();
    const int64_t step = std::max<int64_t>(1, elements / rows);
    for (int64_t first = 0; first < tensor.shape.front(); first += step) {
      const ElementRange columns{first, std::min(tensor.shape.front(), first + step)};
      chunks.push_back({index, columns, 0, rows * columns.size(), first * rows});
    }
  }
  return chunks;
}

}  // namespace sherd
