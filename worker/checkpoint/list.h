#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/file_system.h"

namespace sherd {

// A checkpoint as `sherd checkpoints` shows it.
struct ListedCheckpoint {
  std::string path;
  // "" and −1 where the manifest cannot be read and the directory's name does not say it either.
  std::string kind;
  std::string job;
  int64_t step = -1;
  int64_t epoch = -1;
  // Of all shard files, as the manifest says; how many ranks wrote them.
  int64_t bytes = 0;
  int64_t ranks = 0;
  // Why it cannot be used.
  absl::Status state;
};

enum class Look { kSizes, kEveryByte };

// What stands at `directory`: itself, when it is a checkpoint; else the final weights below it,
// then the step directories, newest first. kNotFound when there is none.
absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(FileSystem& files,
                                                              const std::string& directory,
                                                              Look look);

// A list of {"path","kind","step","epoch","job","bytes","ranks","sound","error"}; null for what is
// not known.
nlohmann::ordered_json CheckpointsJson(const std::vector<ListedCheckpoint>& checkpoints);
std::string CheckpointsTable(const std::vector<ListedCheckpoint>& checkpoints);

}  // namespace sherd
