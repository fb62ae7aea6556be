#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/complain.h"
#include "client/local_cluster.h"

namespace sherd {

ExitCode WorkerCommand(const std::string& command, const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::string> worker = FindProgram("sherd-worker");
  if (!worker.ok()) return Complain(worker.status());
  std::vector<std::string> all = {*worker, command};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return Complain(
      absl::InternalError(absl::StrCat("cannot start ", *worker, ": ", strerror(errno))));
}

}  // namespace sherd
