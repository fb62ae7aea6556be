#include <unistd.h>

#include <iostream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/complain.h"
#include "client/job_client.h"
#include "client/rank_filter.h"
#include "client/render_json.h"
#include "common/printable_text.h"

namespace sherd {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
// A coordinator's log may be older than its own care of what workers say.
constexpr size_t kMostLineBytes = 8192;

void SayOnError(const std::string& sentence) { std::cerr << sentence << std::endl; }

// The state that a followed job ended in.
ExitCode EndOf(const absl::Status& watched, v1::JobState state) {
  return watched.ok() ? ExitCodeOf(state) : Complain(watched);
}

}  // namespace

ExitCode WatchCommand(const Connection& connection, const std::string& job_id) {
  if (absl::Status usable = CheckAddress(connection.coordinator); !usable.ok()) {
    return Complain(usable);
  }
  JobClient client(connection.coordinator, connection.security);
  const absl::StatusOr<v1::Job> job = client.AwaitJob(job_id, kPatience, SayOnError);
  if (!job.ok()) return Complain(job.status());
  Progress progress({connection.format, isatty(STDOUT_FILENO) != 0 && isatty(STDERR_FILENO) != 0,
                     job->spec().train().steps()},
                    std::cout, std::cerr);
  const absl::Status watched =
      client.Watch(job_id, kPatience,
                   {[&](const v1::JobEvent& event) { progress.Show(event); },
                    [&](const std::string& sentence) { progress.Say(sentence); }});
  progress.Finish();
  return EndOf(watched, progress.done() ? progress.done()->state() : v1::JOB_STATE_UNSPECIFIED);
}

ExitCode LogsCommand(const Connection& connection, const std::string& job_id,
                     std::optional<int> rank) {
  if (absl::Status usable = CheckAddress(connection.coordinator); !usable.ok()) {
    return Complain(usable);
  }
  JobClient client(connection.coordinator, connection.security);
  // Asked first, so that a coordinator that is not there is said as such.
  const absl::StatusOr<v1::Job> job = client.AwaitJob(job_id, kPatience, SayOnError);
  if (!job.ok()) return Complain(job.status());
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  RankFilter filter(rank, job->last_event());
  absl::Status refused;
  const auto show = [&](const v1::JobEvent& event) {
    if (event.has_done()) state = event.done().state();
    refused.Update(filter.See(event));
    if (!refused.ok()) return client.StopWatching();
    if (!event.has_log() || !filter.Shows(event.log())) return;
    switch (connection.format) {
      case OutputFormat::kTable:
        std::cout << "[rank " << event.log().rank() << "] "
                  << PrintableText(event.log().text(), kMostLineBytes) << std::endl;
        break;
      case OutputFormat::kJson:
        std::cout << ToLine(EventJson(event)) << std::endl;
        break;
      case OutputFormat::kYaml:
        std::cout << "---\n" << ToYaml(EventJson(event)) << std::flush;
        break;
    }
  };
  const absl::Status watched = client.Watch(job_id, kPatience, {show, SayOnError});
  if (!refused.ok()) return ComplainAboutUse(refused);
  return EndOf(watched, state);
}

}  // namespace sherd
