#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace sherd {

// A place of the code at which a process can be made to end as by kill -9, or to freeze
// (tests/faults/kill_points.toml). Only sources that scripts/check_kill_points.py has seeded have
// such places.
//
// Whoever wants that writes a file with the point's name into the directory that the environment
// variable SHERD_KILL_POINTS names: a process id (0: any process), a number and a signal. The
// process that comes to the point for that many times while the file is there moves the file to its
// process id with the suffix ".struck", and sends itself the signal; so one process is struck once.
// Thread-safe.
class KillPoint {
 public:
  explicit KillPoint(const char* name) {
    const char* const directory = std::getenv("SHERD_KILL_POINTS");
    if (directory != nullptr) path_ = std::string(directory) + "/" + name;
  }

  void Pass() {
    if (path_.empty()) return;
    long process = 0;
    int wanted = 0;
    int signal = 0;
    if (!(std::ifstream(path_) >> process >> wanted >> signal)) {
      passes_ = 0;
      return;
    }
    if (process != 0 && process != ::getpid()) return;
    if (++passes_ < wanted) return;
    const std::string struck =
        path_.substr(0, path_.rfind('/') + 1) + std::to_string(::getpid()) + ".struck";
    if (std::rename(path_.c_str(), struck.c_str()) == 0) ::raise(signal);
  }

 private:
  std::string path_;  // empty: nobody wants a death
  std::atomic<int> passes_ = 0;
};

}  // namespace sherd
