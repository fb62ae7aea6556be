#include "client/run_files.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/local_cluster.h"

namespace sherd {

namespace fs = std::filesystem;

RunFiles::RunFiles(std::string log_directory) : log_directory_(std::move(log_directory)) {}

absl::Status RunFiles::Make() {
  std::error_code error;
  std::vector<std::string> paths;
  for (const std::string& log : LogNames()) paths.push_back(absl::StrCat(log_directory_, "/", log));
  for (fs::path path = log_directory_; path.has_relative_path(); path = path.parent_path()) {
    paths.push_back(path.string());
  }
  for (std::string& path : paths) {
    if (!fs::exists(path, error)) made_.push_back(std::move(path));
  }
  fs::create_directories(log_directory_, error);
  if (!error) return absl::OkStatus();
  Remove();
  return absl::InternalError(
      absl::StrCat("cannot make the directory ", log_directory_, ": ", error.message()));
}

void RunFiles::Remove() {
  std::error_code error;
  // Of a directory that holds something else meanwhile this fails, as it should.
  for (const std::string& path : made_) fs::remove(path, error);
}

}  // namespace sherd
