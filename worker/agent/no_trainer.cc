// Stands in for the trainer and the data links in a build that has none yet: the worker registers
// and answers, and every job fails with a sentence.
#include <cstdlib>

#include "absl/status/status.h"
#include "worker/comm/data_link.h"
#include "worker/train/trainer.h"

namespace sherd {
namespace {

class NoListener final : public DataListener {
 public:
  std::string address() const override { return "unix-abstract:none"; }
  LinkInbox& inbox() override { std::abort(); }
};

class NoTrainer final : public Trainer {
 public:
  TrainResult Run(TrainObserver&) override {
    TrainResult result;
    result.status = absl::UnimplementedError("this worker was built without a trainer");
    return result;
  }
  void Abort(absl::string_view) override {}
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataListener>> DataListener::Bind() {
  return std::make_unique<NoListener>();
}
std::string SharedMemoryDomain() { return "none"; }
std::unique_ptr<Trainer> Trainer::Make(const v1::Assignment&, const TrainerOptions&, DataListener&,
                                       prometheus::Registry&) {
  return std::make_unique<NoTrainer>();
}
absl::Status InspectJobFiles(const v1::DataSpec&, const v1::CheckpointSpec&, int64_t, int64_t,
                             const TrainerOptions&) {
  return absl::OkStatus();
}

}  // namespace sherd
