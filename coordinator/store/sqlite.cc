#include "coordinator/store/sqlite.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

absl::Status ToStatus(sqlite3* database, int result, const std::string& path) {
  const std::string detail =
      absl::StrCat(database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(result), ")");
  switch (result & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(
          absl::StrCat("no space left on the disk of the event log ", path,
                       "; free some and start the coordinator again (", detail));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat("the event log ", path,
                                              " is damaged; put a backup in its place, or move it "
                                              "away to start without the jobs that it "
                                              "knows (",
                                              detail));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat("the event log ", path, " is in use by another process (", detail));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_CANTOPEN:
      return absl::PermissionDeniedError(absl::StrCat(
          "the event log ", path,
          " cannot be written; check the directory's owner and permissions (", detail));
    case SQLITE_IOERR:
      return absl::UnavailableError(
          absl::StrCat("reading or writing the event log ", path, " failed (", detail));
    default:
      return absl::InternalError(absl::StrCat("the event log ", path, " failed (", detail));
  }
}

}  // namespace

struct Database::Impl {
  std::string path;
  sqlite3* handle = nullptr;
};

struct Statement::Impl {
  const Database::Impl* database = nullptr;
  sqlite3_stmt* handle = nullptr;
};

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  const int result =
      sqlite3_open_v2(path.c_str(), &impl->handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> database(new Database(std::move(impl)));
  if (result != SQLITE_OK) return ToStatus(database->impl_->handle, result, path);
  sqlite3_extended_result_codes(database->impl_->handle, 1);
  return database;
}

Database::Database(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Database::~Database() { sqlite3_close_v2(impl_->handle); }

absl::Status Database::Execute(const std::string& sql) {
  const int result = sqlite3_exec(impl_->handle, sql.c_str(), nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return ToStatus(impl_->handle, result, impl_->path);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Statement>> Database::Prepare(const std::string& sql) {
  auto impl = std::make_unique<Statement::Impl>();
  impl->database = impl_.get();
  const int result = sqlite3_prepare_v3(impl_->handle, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT,
                                        &impl->handle, nullptr);
  if (result != SQLITE_OK) return ToStatus(impl_->handle, result, impl_->path);
  return std::unique_ptr<Statement>(new Statement(std::move(impl)));
}

Statement::Statement(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Statement::~Statement() { sqlite3_finalize(impl_->handle); }

void Statement::BindInt(int parameter, int64_t value) {
  sqlite3_bind_int64(impl_->handle, parameter, value);
}

void Statement::BindText(int parameter, absl::string_view text) {
  sqlite3_bind_text64(impl_->handle, parameter, text.data(), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
}

void Statement::BindBlob(int parameter, absl::string_view bytes) {
  // An empty view may have no address, which would bind NULL.
  const char* data = bytes.empty() ? "" : bytes.data();
  sqlite3_bind_blob64(impl_->handle, parameter, data, bytes.size(), SQLITE_TRANSIENT);
}

absl::StatusOr<bool> Statement::Step() {
  const int result = sqlite3_step(impl_->handle);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return ToStatus(impl_->database->handle, result, impl_->database->path);
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(impl_->handle, column); }

std::string Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(impl_->handle, column);
  const int size = sqlite3_column_bytes(impl_->handle, column);
  return data == nullptr ? "" : std::string(static_cast<const char*>(data), size);
}

void Statement::Reset() {
  sqlite3_reset(impl_->handle);
  sqlite3_clear_bindings(impl_->handle);
}

absl::Status Statement::Run() {
  const absl::StatusOr<bool> row = Step();
  Reset();
  return row.status();
}

}  // namespace sherd
