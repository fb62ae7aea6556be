#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sherd {

class Statement;

// A SQLite database of this process alone; sqlite.cc is the one file that knows the library. Errors
// of every function: kResourceExhausted (disk full), kDataLoss (the file is damaged or no
// database), kFailedPrecondition (locked), kPermissionDenied (cannot be written), kInternal; each
// names the file. One thread.
class Database {
 public:
  // Opens or makes `path`; ":memory:" for one that ends with the object.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Runs statements that give no rows.
  absl::Status Execute(const std::string& sql);
  // Valid as long as the database.
  absl::StatusOr<std::unique_ptr<Statement>> Prepare(const std::string& sql);

 private:
  friend class Statement;
  struct Impl;
  explicit Database(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A prepared statement, used again and again: Bind…, Step until false, Reset.
class Statement {
 public:
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Parameters count from 1. The bytes are copied.
  void BindInt(int parameter, int64_t value);
  void BindText(int parameter, absl::string_view text);
  void BindBlob(int parameter, absl::string_view bytes);

  // True when there is a row to read, false at the end.
  absl::StatusOr<bool> Step();
  // Columns count from 0.
  int64_t Int(int column) const;
  std::string Bytes(int column) const;

  // Ready to bind again.
  void Reset();
  // Steps a statement without rows once, and resets it.
  absl::Status Run();

 private:
  friend class Database;
  struct Impl;
  explicit Statement(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sherd
