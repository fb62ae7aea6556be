#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "common/check.h"
#include "gtest/gtest.h"

namespace sherd {

// A directory that ends with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(testing::TempDir() + "/sherd-XXXXXX") {
    SHERD_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sherd
