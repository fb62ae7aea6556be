#include <deque>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/complain.h"
#include "client/event_sentences.h"
#include "client/job_client.h"
#include "client/print.h"
#include "client/render_decision.h"
#include "client/render_json.h"
#include "client/render_text.h"

namespace sherd {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);
// Of the feed's end; log lines are for `sherd logs`.
constexpr size_t kLastEvents = 10;

// What of a job's feed is told.
struct Past {
  std::vector<v1::EpochReport> epochs;
  std::deque<v1::JobEvent> last;
};

// The feed as it was when the job was asked about.
absl::StatusOr<Past> ReadPast(JobClient& client, const v1::Job& job) {
  Past past;
  if (job.last_event() == 0) return past;
  const auto take = [&](const v1::JobEvent& event) {
    if (event.sequence() > job.last_event()) return;
    if (event.has_epoch()) past.epochs.push_back(event.epoch());
    if (!event.has_log() && !event.has_ledger()) past.last.push_back(event);
    if (past.last.size() > kLastEvents) past.last.pop_front();
    // What comes after it may take as long as the job.
    if (event.sequence() == job.last_event()) client.StopWatching();
  };
  const absl::Status read =
      client.Watch(job.id(), kPatience,
                   {take, [](const std::string& sentence) { std::cerr << sentence << std::endl; }});
  if (!read.ok() && read.code() != absl::StatusCode::kCancelled) return read;
  return past;
}

Json PastJson(const Past& past, const v1::Job& job) {
  Json json = JobJson(job);
  json["epochs"] = Json::array();
  for (const v1::EpochReport& epoch : past.epochs) {
    v1::JobEvent event;
    *event.mutable_epoch() = epoch;
    json["epochs"].push_back(EventJson(event));
  }
  json["events"] = Json::array();
  for (const v1::JobEvent& event : past.last) json["events"].push_back(EventJson(event));
  return json;
}

std::string PastText(const Past& past, const v1::Job& job) {
  std::string text = JobText(job);
  if (job.has_decision()) absl::StrAppend(&text, "\n", DecisionText(job.decision()), "\n");
  if (!past.epochs.empty()) text += "\n";
  for (const v1::EpochReport& epoch : past.epochs) {
    absl::StrAppend(&text, EpochSentence(epoch), "\n");
  }
  if (!past.last.empty()) text += "\nlast events\n";
  for (const v1::JobEvent& event : past.last) {
    absl::StrAppend(&text, event.sequence(), "  ", EventSentence(event, job.spec().train().steps()),
                    "\n");
  }
  return absl::StrCat(text, "\nspecification\n", ToYaml(SpecJson(job.spec())));
}

}  // namespace

ExitCode DescribeCommand(const Connection& connection, const std::string& job_id) {
  if (absl::Status usable = CheckAddress(connection.coordinator); !usable.ok()) {
    return Complain(usable);
  }
  JobClient client(connection.coordinator, connection.security);
  const absl::StatusOr<v1::Job> job = client.GetJob(job_id);
  if (!job.ok()) return Complain(job.status());
  const absl::StatusOr<Past> past = ReadPast(client, *job);
  if (!past.ok()) return Complain(past.status());
  Print(connection.format, PastJson(*past, *job), PastText(*past, *job));
  return ExitCodeOf(job->state());
}

}  // namespace sherd
