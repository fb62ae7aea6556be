// All that workers and users may tell a coordinator, as messages of the wire, one after the other:
// a byte that says which, two of the length, the message. A coordinator goes on whatever it hears,
// and one that replays its log comes to the same state.

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/core/snapshot.h"
#include "coordinator/runtime/controller.h"
#include "coordinator/runtime/coordinator_metrics.h"
#include "coordinator/runtime/worker_claims.h"
#include "coordinator/store/event_log.h"
#include "plan/job_spec.h"
#include "prometheus/registry.h"
#include "tests/coordinator/manual_clock.h"
#include "tests/coordinator/recording_link.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr int kWorkers = 3;

class Coordinator {
 public:
  Coordinator() : log_(*sherd::EventLog::Open(":memory:")) { Start(); }

  void Start() {
    const std::string before = controller_ == nullptr ? "" : State();
    controller_.reset();
    registry_ = std::make_shared<prometheus::Registry>();
    metrics_ = std::make_unique<sherd::CoordinatorMetrics>(*registry_);
    controller_ = std::make_unique<sherd::Controller>(
        sherd::ControllerOptions(), clock_, *log_,
        [](int bytes) { return std::string(bytes, 's'); }, *metrics_);
    FUZZ_CHECK(controller_->Recover().ok());
    FUZZ_CHECK(before.empty() || State() == before);
    EndTurn();
    for (int i = 0; i < kWorkers; ++i) Connect(i);
  }

  void Connect(int worker) {
    sherd::v1::Hello hello;
    hello.set_worker_id(absl::StrCat("worker", worker));
    hello.set_incarnation(1);
    hello.set_device("cpu:0");
    hello.set_host("host");
    hello.set_shared_memory_domain("host/0");
    hello.set_data_address(absl::StrCat("unix-abstract:", worker));
    links_[worker] = std::make_shared<sherd::RecordingLink>();
    controller_->fleet().Connect(hello, links_[worker]);
    EndTurn();
  }

  void Take(uint8_t what, absl::string_view bytes) {
    const int worker = what / 8 % kWorkers;
    const std::string text(bytes);
    switch (what % 8) {
      case 0: {
        sherd::v1::Hello hello;
        if (!hello.ParseFromString(text)) return;
        controller_->fleet().Connect(hello, std::make_shared<sherd::RecordingLink>());
        break;
      }
      case 1:
      case 2: {
        sherd::v1::SessionRequest request;
        if (!request.ParseFromString(text)) return;
        // Numbers in order, so that reports get past the first check.
        if (what % 8 == 2) request.set_sequence(++sequences_[worker]);
        controller_->fleet().Receive(links_[worker].get(), request);
        break;
      }
      case 3: {
        sherd::v1::SubmitRequest request;
        if (!request.ParseFromString(text)) return;
        *request.mutable_spec() = sherd::NormalizeJobSpec(request.spec());
        if (sherd::ValidateJobSpec(request.spec()).fields_size() > 0) return;
        controller_->jobs().Submit(request, [](auto) {});
        break;
      }
      case 4: {
        sherd::v1::ReportExitRequest request;
        if (!request.ParseFromString(text) || !sherd::CheckExit(request).ok()) return;
        controller_->fleet().ReportExit(request);
        break;
      }
      case 5:
        controller_->jobs().Cancel(sherd::JobId(text), [](auto) {});
        controller_->jobs().GetJob(sherd::JobId(text), [](auto) {});
        controller_->jobs().Drain(sherd::WorkerId(text), [](auto) {});
        Read(text);
        break;
      case 6:
        clock_.Advance(absl::Milliseconds(1 << (what / 8 % 16)));
        controller_->BeginTurn();
        break;
      case 7:
        controller_->fleet().Disconnect(links_[worker].get());
        EndTurn();
        sequences_[worker] = 0;
        Connect(worker);
        break;
    }
    EndTurn();
  }

  // What users ask without changing anything.
  void Read(const std::string& text) {
    sherd::v1::WatchRequest watch;
    if (watch.ParseFromString(text)) {
      controller_->jobs().ReadFeed(sherd::JobId(watch.job_id()), watch.after_sequence(), 4,
                                   absl::Seconds(1), [](auto) {});
    }
    sherd::v1::ListJobsRequest list;
    if (list.ParseFromString(text)) controller_->jobs().ListJobs(list.next(), [](auto) {});
  }

  void EndTurn() { FUZZ_CHECK(controller_->EndTurn().ok()); }
  std::string State() const { return sherd::WriteState(controller_->state()).SerializeAsString(); }

 private:
  sherd::ManualClock clock_;
  std::unique_ptr<sherd::EventLog> log_;
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<sherd::CoordinatorMetrics> metrics_;
  std::unique_ptr<sherd::Controller> controller_;
  std::array<std::shared_ptr<sherd::RecordingLink>, kWorkers> links_;
  std::array<uint64_t, kWorkers> sequences_ = {};
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Coordinator coordinator;
  while (size >= 3) {
    const size_t length = std::min<size_t>(data[1] | data[2] << 8, size - 3);
    coordinator.Take(data[0], sherd::AsText(data + 3, length));
    data += 3 + length;
    size -= 3 + length;
  }
  coordinator.Start();
  return 0;
}
