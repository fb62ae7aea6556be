#include "tests/simulation/worker_process.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace sherd::simulation {
namespace {

// As those of the agent and its session.
constexpr absl::Duration kAbortLimit = absl::Seconds(10);
constexpr absl::Duration kLeaveLimit = absl::Seconds(25);
constexpr absl::Duration kFlushLimit = absl::Seconds(2);
constexpr absl::Duration kWelcomeTimeout = absl::Seconds(10);
constexpr absl::Duration kLongestBackoff = absl::Seconds(1);

}  // namespace

WorkerProcess::WorkerProcess(Cluster& cluster, std::string name, std::string host,
                             uint64_t incarnation, OnEnd ended)
    : cluster_(cluster),
      name_(std::move(name)),
      host_(std::move(host)),
      address_(absl::StrCat("unix-abstract:", name_, "/", incarnation)),
      network_address_(absl::StrCat("tcp:", name_, "/", incarnation)),
      incarnation_(incarnation),
      ended_(std::move(ended)),
      store_(cluster.options.planted != Planted::kNoFences) {
  cluster_.processes[address_] = this;
  cluster_.processes[network_address_] = this;
}

void WorkerProcess::Run(std::function<void()> what) {
  if (!alive_) return;
  if (frozen_) return deferred_.push_back(std::move(what));
  what();
}

void WorkerProcess::After(absl::Duration delay, std::function<void()> what) {
  cluster_.queue.After(delay, [this, what = std::move(what)]() mutable { Run(std::move(what)); });
}

void WorkerProcess::Start() {
  cluster_.trace.Say(name_, " starts as life ", incarnation_);
  Connect();
}

void WorkerProcess::Kill(int signal) {
  if (!alive_) return;
  cluster_.trace.Say(name_, " is killed by signal ", signal);
  End(signal, 0);
}

void WorkerProcess::End(int signal, int code) {
  alive_ = false;
  deferred_.clear();
  cluster_.referee.IsLost(incarnation_);
  if (rank_ != nullptr) rank_->Vanish();
  store_ = Store(true);
  if (stream_ != nullptr) stream_->Abandon();
  ended_(signal, code);
}

void WorkerProcess::Freeze() {
  if (!alive_ || frozen_) return;
  cluster_.trace.Say(name_, " freezes");
  frozen_ = true;
}

void WorkerProcess::Thaw() {
  if (!alive_ || !frozen_) return;
  cluster_.trace.Say(name_, " thaws");
  frozen_ = false;
  // In order, each at a moment of its own.
  for (std::function<void()>& what : std::exchange(deferred_, {})) {
    After(absl::ZeroDuration(), std::move(what));
  }
}

void WorkerProcess::BreakStream() {
  if (!alive_ || stream_ == nullptr) return;
  cluster_.trace.Say("the stream of ", name_, " breaks");
  stream_->Break();
}

void WorkerProcess::Leave() {
  Run([this] {
    cluster_.trace.Say(name_, " is asked to leave");
    if (!state_.rank().has_value() && !welcomed_) {
      return Handle(StopRequested{kExitAsked, "SIGTERM"});
    }
    v1::SessionRequest leaving;
    leaving.mutable_leaving()->set_reason("SIGTERM");
    Say(std::move(leaving));
    After(kLeaveLimit, [this] { Handle(StopRequested{kExitAsked, "nobody let it go in time"}); });
  });
}

void WorkerProcess::Connect() {
  if (refused_) return;
  buffer_.Rewind();
  welcomed_ = false;
  stream_ = std::make_shared<Stream>(cluster_, *this);
  stream_->Open(MakeHello());
  After(kWelcomeTimeout, [this, stream = stream_.get()] {
    if (stream == stream_.get() && !welcomed_) stream_->Break();
  });
}

v1::Hello WorkerProcess::MakeHello() const {
  v1::Hello hello;
  hello.set_worker_id(name_);
  hello.set_incarnation(incarnation_);
  hello.set_device("cpu:0");
  hello.set_host(host_);
  hello.set_shared_memory_domain(host_ + "/0");
  hello.set_data_address(address_);
  hello.set_network_address(network_address_);
  hello.set_numerics_fingerprint("avx2");
  hello.set_output_root("/" + host_);
  const std::optional<RankId>& rank = state_.rank();
  if (!rank.has_value() || cluster_.options.planted == Planted::kForgottenRank) return hello;
  hello.set_job_id(rank->job.value());
  hello.set_epoch(rank->epoch.value());
  hello.set_rank(rank->rank);
  return hello;
}

void WorkerProcess::StreamEnded(const Stream& stream, const absl::Status& status) {
  if (&stream != stream_.get()) return;
  stream_->Abandon();
  stream_ = nullptr;
  welcomed_ = false;
  cluster_.trace.Say(name_, " loses its stream: ", std::string(status.message()));
  if (absl::IsAlreadyExists(status)) {
    refused_ = true;
    return Handle(StopRequested{kExitRefused, std::string(status.message())});
  }
  After(backoff_ * cluster_.chance.Between(5, 10) / 10, [this] {
    if (stream_ == nullptr) Connect();
  });
  backoff_ = std::min(2 * backoff_, kLongestBackoff);
}

void WorkerProcess::Hear(const Stream& stream, const v1::SessionResponse& message) {
  if (&stream != stream_.get()) return;
  if (message.has_welcome()) return OnWelcome(message);
  buffer_.Acknowledge(message.acknowledged());
  ExitWhenFlushed();
  if (message.has_assign()) {
    // As the rank is told.
    v1::Hold hold;
    hold.set_job_id(message.assign().job_id());
    hold.set_epoch(message.assign().epoch());
    hold.set_world(message.assign().world());
    *hold.mutable_owners() = message.assign().stored_for();
    hold.set_secret(message.assign().secret());
    for (const int32_t owner : hold.owners()) {
      const SegmentKey key{hold.job_id(), hold.epoch(), hold.world(), owner};
      if (Expects(key, hold.secret())) continue;
      cluster_.referee.Accuse(absl::StrCat(name_, " is told as a rank to store for rank ", owner,
                                           ", and was not told so before"));
    }
    Expect(hold);
    return Handle(AssignReceived{message.assign()});
  }
  if (message.has_hold()) return Expect(message.hold());
  if (message.has_abort()) return Handle(AbortReceived{message.abort()});
  if (message.has_pause()) return Handle(PauseReceived{message.pause()});
  if (message.has_locate()) return Handle(LocateReceived{message.locate()});
  if (message.has_shutdown()) return Handle(StopRequested{kExitAsked, message.shutdown().reason()});
  if (message.has_retain()) {
    const v1::Retain& retain = message.retain();
    if (retain.ended()) return store_.Forget(retain.job_id());
    return store_.Retain(retain.job_id(), retain.epoch());
  }
  v1::SessionRequest answer;
  if (message.has_report_holdings()) {
    const v1::ReportHoldings& asked = message.report_holdings();
    answer.mutable_holdings()->set_job_id(asked.job_id());
    answer.mutable_holdings()->set_epoch(asked.epoch());
    for (v1::Holding& held : store_.Seal(asked.job_id(), asked.epoch())) {
      *answer.mutable_holdings()->add_holdings() = std::move(held);
    }
    cluster_.trace.Say(name_, " tells what it holds of ", asked.job_id(), ": ",
                       answer.holdings().holdings_size(), " versions");
    return Say(std::move(answer));
  }
  if (!message.has_inspect_data()) return;
  answer.mutable_inspection()->set_request_id(message.inspect_data().request_id());
  Answer(answer);
}

void WorkerProcess::Expect(const v1::Hold& hold) {
  for (const int32_t owner : hold.owners()) {
    expected_[{hold.job_id(), hold.epoch(), hold.world(), owner}] = hold.secret();
  }
}

void WorkerProcess::OnWelcome(const v1::SessionResponse& message) {
  buffer_.Acknowledge(message.acknowledged());
  heartbeat_ = absl::Milliseconds(message.welcome().heartbeat_interval_ms());
  welcomed_ = true;
  backoff_ = absl::Milliseconds(50);
  BeatHeart(stream_.get());
  Pump();
}

void WorkerProcess::BeatHeart(const Stream* stream) {
  After(heartbeat_, [this, stream] {
    if (stream != stream_.get() || !welcomed_) return;
    v1::SessionRequest request;
    request.mutable_heartbeat();
    stream_->SendUp(request);
    BeatHeart(stream);
  });
}

void WorkerProcess::Say(v1::SessionRequest numbered) {
  buffer_.Add(std::move(numbered));
  Pump();
}

void WorkerProcess::Answer(const v1::SessionRequest& request) {
  if (welcomed_) stream_->SendUp(request);
}

void WorkerProcess::Pump() {
  if (!welcomed_) return;
  while (const v1::SessionRequest* next = buffer_.NextToSend()) stream_->SendUp(*next);
}

void WorkerProcess::Report(v1::RankReport report) {
  v1::SessionRequest request;
  *request.mutable_report() = std::move(report);
  Say(std::move(request));
}

void WorkerProcess::RankEnded(TrainerEnded ended) {
  past_ranks_.push_back(std::move(rank_));
  Handle(std::move(ended));
}

void WorkerProcess::Handle(const AgentEvent& event) {
  for (const AgentAction& action : state_.Handle(event)) Perform(action);
}

void WorkerProcess::Perform(const AgentAction& action) {
  if (const auto* start = std::get_if<StartTrainer>(&action)) {
    rank_ = std::make_unique<FakeRank>(cluster_, *this, start->assignment);
    rank_->Start();
  } else if (std::holds_alternative<AbortTrainer>(action)) {
    rank_->Abort();
    After(kAbortLimit, [this, rank = rank_.get()] {
      if (rank == rank_.get()) Handle(AbortOverdue{});
    });
  } else if (std::holds_alternative<PauseTrainer>(action)) {
    rank_->Pause();
  } else if (const auto* tell = std::get_if<TellPosition>(&action)) {
    v1::SessionRequest answer;
    *answer.mutable_position() = rank_->Position();
    answer.mutable_position()->set_question(tell->question);
    Answer(answer);
  } else if (const auto* report = std::get_if<sherd::Report>(&action)) {
    v1::RankReport told = report->report;
    if (told.has_released()) {
      for (v1::Holding& held : store_.Seal(told.job_id(), told.epoch())) {
        *told.mutable_released()->add_holdings() = std::move(held);
      }
      cluster_.trace.Say(name_, " releases epoch ", told.epoch(), " of ", told.job_id(), " with ",
                         told.released().holdings_size(), " versions");
    }
    if (told.has_finished()) {
      // As the memory of every rank has them.
      for (int64_t step = 1; step <= told.finished().steps(); ++step) {
        told.mutable_finished()->add_last_steps()->set_step(step);
      }
    }
    Report(std::move(told));
  } else if (const auto* exit = std::get_if<ExitProcess>(&action)) {
    BeginExit(exit->code);
  }
}

void WorkerProcess::BeginExit(int code) {
  cluster_.trace.Say(name_, " leaves with exit code ", code);
  if (code == kExitRefused) {
    cluster_.referee.Accuse(
        absl::StrCat(name_, " was refused although it is the only process of its name"));
  }
  exit_code_ = code;
  After(kFlushLimit, [this] { End(0, *exit_code_); });
  ExitWhenFlushed();
}

void WorkerProcess::ExitWhenFlushed() {
  if (!exit_code_ || buffer_.size() > 0) return;
  After(absl::ZeroDuration(), [this] { End(0, *exit_code_); });
}

}  // namespace sherd::simulation
