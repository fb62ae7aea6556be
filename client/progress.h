#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

enum class OutputFormat { kTable, kJson, kYaml };

// Shows a job's feed as it comes: to a program one JSON line (or YAML document) an event; to a
// person step lines, or a bar on a terminal, and tables at the end. Data goes to `out`, chatter and
// the bar to `chatter`. Not thread-safe.
class Progress {
 public:
  struct Options {
    OutputFormat format = OutputFormat::kTable;
    // Both streams are a terminal.
    bool bar = false;
    // The job's number of steps; 0 when unknown.
    int64_t steps = 0;
  };

  // The streams must outlive this.
  Progress(const Options& options, std::ostream& out, std::ostream& chatter);

  void Show(const v1::JobEvent& event);
  // A sentence for the person who watches.
  void Say(absl::string_view sentence);
  // After the last event: for a person the tables, then how a job that did not succeed ended.
  void Finish();

  // Present once the job has ended.
  const std::optional<v1::Done>& done() const { return done_; }

 private:
  void ShowToPerson(const v1::JobEvent& event);
  void ShowStep(const v1::StepReport& step);
  absl::Duration TimeLeft() const;
  void DrawBar();
  void ClearBar();

  const Options options_;
  std::ostream& out_;
  std::ostream& chatter_;
  bool bar_drawn_ = false;
  std::optional<v1::StepReport> step_;
  // Smoothed; the first step's, which is slow, is forgotten.
  double step_ms_ = 0;
  std::vector<v1::RankLedger> ledgers_;
  std::optional<v1::Done> done_;
};

}  // namespace sherd
