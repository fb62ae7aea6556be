#include "bench/repetitions.h"

#include <time.h>

#include <fstream>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace sherd {
namespace {

// A line "Name:   N kB" of /proc/self/status, in bytes; 0 where there is none.
int64_t StatusBytes(absl::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, name) || !absl::ConsumePrefix(&rest, ":")) continue;
    int64_t kibibytes = 0;
    absl::ConsumeSuffix(&rest, " kB");
    return absl::SimpleAtoi(rest, &kibibytes) ? kibibytes << 10 : 0;
  }
  return 0;
}

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void WriteLine(const std::string& line) { std::cout << line << std::endl; }

std::string Json(const Figures& figures) {
  const auto field = [](std::string* out, const std::pair<std::string, double>& figure) {
    absl::StrAppendFormat(out, "\"%s\": %.9g", figure.first, figure.second);
  };
  return "{" + absl::StrJoin(figures, ", ", field) + "}";
}

}  // namespace

Figures Timed(const std::function<void()>& work) {
  const double wall = Seconds(CLOCK_MONOTONIC);
  const double cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  work();
  return {{"seconds", Seconds(CLOCK_MONOTONIC) - wall},
          {"cpu_seconds", Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu}};
}

void AddTimes(const Figures& part, double factor, Figures& total) {
  for (size_t i = 0; i < part.size(); ++i) {
    if (i == total.size()) total.emplace_back(part[i].first, 0.0);
    total[i].second += factor * part[i].second;
  }
}

Repetitions::Repetitions() : idle_bytes_(StatusBytes("VmRSS")) {}

void Repetitions::Say(const std::string& name, const std::string& value) {
  WriteLine(absl::StrFormat("{\"%s\": \"%s\"}", name, value));
}

std::string Repetitions::Hear() {
  std::string line;
  std::getline(std::cin, line);
  return line;
}

void Repetitions::Serve(const Figures& about, const std::function<Figures()>& repetition) {
  WriteLine(Json(about));
  for (std::string command = Hear(); !command.empty(); command = Hear()) {
    if (command == "run") {
      WriteLine(Json(repetition()));
    } else if (command == "memory") {
      WriteLine(Json({{"idle", static_cast<double>(idle_bytes_)},
                      {"peak", static_cast<double>(StatusBytes("VmHWM"))}}));
    } else {
      WriteLine("{\"error\": \"not a command\"}");
    }
  }
}

}  // namespace sherd
