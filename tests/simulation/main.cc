// Runs schedules from a seed on, and tells of the first that goes wrong as a trace.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "prometheus/registry.h"
#include "tests/simulation/schedule.h"

namespace sherd::simulation {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Totals {
  int64_t schedules = 0;
  Outcome sum;
  void Add(const Outcome& outcome) {
    ++schedules;
    sum.events += outcome.events;
    sum.epochs += outcome.epochs;
    sum.losses += outcome.losses;
    sum.rollbacks += outcome.rollbacks;
    sum.committed_steps += outcome.committed_steps;
    sum.succeeded += outcome.succeeded;
    sum.failed += outcome.failed;
    sum.cancelled += outcome.cancelled;
  }
  void Print(double seconds) const {
    std::cout << schedules << " schedules in " << seconds << " s ("
              << static_cast<double>(schedules) / seconds << "/s): " << sum.events << " events, "
              << sum.committed_steps << " committed steps, " << sum.epochs << " epochs, "
              << sum.losses << " lives lost, " << sum.rollbacks
              << " rollbacks; jobs: " << sum.succeeded << " succeeded, " << sum.failed
              << " failed, " << sum.cancelled << " cancelled\n";
  }
};

int Run(Options options, int64_t count, double budget, bool keep_going) {
  const auto registry = std::make_shared<prometheus::Registry>();
  CoordinatorMetrics metrics(*registry);
  const auto start = std::chrono::steady_clock::now();
  Totals totals;
  int64_t wrong = 0;
  for (int64_t index = 0; index < count && SecondsSince(start) < budget; ++index) {
    Outcome outcome = RunSchedule(options, metrics);
    totals.Add(outcome);
    if (options.trace) {
      for (const std::string& line : outcome.trace) std::cout << line << "\n";
    }
    if (outcome.wrong) {
      ++wrong;
      std::cout << "seed " << options.seed << ": " << *outcome.wrong << "\n";
      if (!keep_going) {
        std::cout << "run again with --seed " << options.seed << " --count 1 --trace\n";
        break;
      }
    }
    ++options.seed;
  }
  totals.Print(SecondsSince(start));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sherd::simulation

int main(int argc, char** argv) {
  CLI::App app("Simulates coordinators and workers under faults");
  sherd::simulation::Options options;
  int64_t count = 1'000'000;
  double budget = 1e9;
  bool keep_going = false;
  app.add_option("--seed", options.seed, "of the first schedule; each next one's is one more");
  app.add_option("--count", count, "schedules");
  app.add_option("--seconds", budget, "stop after so long");
  app.add_flag("--trace", options.trace, "tell all that happens");
  app.add_flag("--keep-going", keep_going, "also after one that goes wrong");
  CLI11_PARSE(app, argc, argv);
  return sherd::simulation::Run(options, count, budget, keep_going);
}
