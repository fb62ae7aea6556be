#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_harness.h"
#include "tests/worker/checkpoint/training_world.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/verify.h"

namespace sherd {
namespace {

using testing::HasSubstr;

constexpr float kOldPadding = 777777;
constexpr float kNewPadding = -7;

std::vector<WorldLayout> Layouts() {
  std::vector<WorldLayout> layouts;
  for (const v1::Strategy strategy : {v1::STRATEGY_DDP, v1::STRATEGY_ZERO1, v1::STRATEGY_ZERO2,
                                      v1::STRATEGY_ZERO3, v1::STRATEGY_HYBRID}) {
    for (const int data : {1, 2, 3, 4}) {
      for (const int tensor : {1, 2}) {
        const int group = data == 4 ? 2 : data;
        layouts.push_back({strategy, data, tensor, strategy == v1::STRATEGY_HYBRID ? group : 0});
      }
    }
  }
  return layouts;
}

std::string NameOf(const WorldLayout& layout) {
  return absl::StrCat(sherd::NameOf(layout.strategy), " ", layout.data, " x ", layout.tensor);
}

Tensors Zeros(const Tensors& tensors) {
  Tensors zeros;
  for (const auto& [name, values] : tensors) zeros[name].assign(values.size(), 0.0f);
  return zeros;
}

struct Model {
  const char* name;
  v1::Architecture arch;
  bool tied;
};

class TrainingLayouts : public testing::TestWithParam<Model> {
 protected:
  const v1::JobSpec job_ = SmallJob(GetParam().arch, GetParam().tied);
  const Tensors tensors_ = WholeTensors(TrainingTensorsOf(BuildInventory(ShapeOf(job_.model()))));
  const TemporaryDirectory root_;
  // Without its syncs.
  FaultyFileSystem files_;
};

// F41, F42: no conversion, and every element of weights and moments is what it was.
TEST_P(TrainingLayouts, AnyLoadsWhatAnyOtherWrote) {
  const std::vector<WorldLayout> layouts = Layouts();
  for (size_t from = 0; from < layouts.size(); ++from) {
    const TrainingWorld writers(job_, layouts[from], tensors_, kOldPadding);
    const CheckpointInfo info = TrainingInfoOf(job_, static_cast<int64_t>(from));
    const absl::Status saved = SaveTraining(files_, root_.path(), info, writers);
    ASSERT_TRUE(saved.ok()) << saved << NameOf(layouts[from]);
    const std::string path = StepDirectory(root_.path(), info.step, info.epoch);
    const absl::StatusOr<Manifest> manifest = ReadSoundManifest(path);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    ASSERT_TRUE(VerifyFiles(path, *manifest).ok());
    // Every layout reads itself and some that lie far from it in the list.
    for (const size_t step : {0, 7, 18}) {
      const WorldLayout& layout = layouts[(from + step) % layouts.size()];
      TrainingWorld readers(job_, layout, Zeros(tensors_), kNewPadding);
      const TrainingWorld wanted(job_, layout, tensors_, kNewPadding);
      for (int rank = 0; rank < readers.ranks(); ++rank) {
        const auto read = LoadTargets(path, *manifest, readers.Targets(rank));
        ASSERT_TRUE(read.ok()) << read.status();
        ASSERT_EQ(readers.Values(rank), wanted.Values(rank))
            << NameOf(layouts[from]) << " to " << NameOf(layout) << ", rank " << rank;
      }
    }
  }
}

TEST_P(TrainingLayouts, SaveEveryElementOnceAndNoPadding) {
  int64_t elements = 0;
  for (const auto& [name, values] : tensors_) elements += static_cast<int64_t>(values.size());
  for (const WorldLayout& layout : Layouts()) {
    const TrainingWorld world(job_, layout, tensors_, kOldPadding);
    int64_t written = 0;
    for (int rank = 0; rank < world.ranks(); ++rank) {
      for (const TensorRange& range : world.Ranges(rank)) {
        written += range.end - range.begin;
        for (int64_t i = 0; i < range.end - range.begin; ++i) {
          ASSERT_NE(range.data[i], kOldPadding) << range.name;
        }
      }
    }
    EXPECT_EQ(written, elements) << NameOf(layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingLayouts,
                         testing::Values(Model{"Gpt2Tied", v1::ARCHITECTURE_GPT2, true},
                                         Model{"Gpt2Untied", v1::ARCHITECTURE_GPT2, false},
                                         Model{"LlamaTied", v1::ARCHITECTURE_LLAMA, true},
                                         Model{"LlamaUntied", v1::ARCHITECTURE_LLAMA, false}),
                         [](const auto& info) { return info.param.name; });

// What a rank of many reads is little more than what it needs, also of one large tensor.
TEST(LoadTargets, ReadsTheChunksThatItNeedsAlone) {
  const TemporaryDirectory root;
  const auto files = MakePosixFileSystem();
  v1::JobSpec job = SmallJob(v1::ARCHITECTURE_LLAMA, true);
  // One tensor of five chunks, and so are its moments.
  job.mutable_model()->set_vocab(5 * kChunkBytes / 4 / job.model().hidden());
  const Tensors tensors = WholeTensors(TrainingTensorsOf(BuildInventory(ShapeOf(job.model()))));
  const CheckpointInfo info = TrainingInfoOf(job, 1);
  ASSERT_TRUE(SaveTraining(*files, root.path(), info, TrainingWorld(job, {}, tensors, 0)).ok());
  const std::string path = StepDirectory(root.path(), 1, 1);
  const absl::StatusOr<Manifest> manifest = ReadSoundManifest(path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const WorldLayout thirds{.data = 3};
  TrainingWorld readers(job, thirds, Zeros(tensors), 0);
  const TrainingWorld wanted(job, thirds, tensors, 0);
  for (int rank = 0; rank < 3; ++rank) {
    const absl::StatusOr<int64_t> read = LoadTargets(path, *manifest, readers.Targets(rank));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(readers.Values(rank), wanted.Values(rank));
    // Less than two chunks of five, and what begins or ends inside another one.
    EXPECT_LE(*read, 3 * 3 * kChunkBytes + (1 << 20));
  }
  // Whoever goes along hears of every chunk, and ends it in the middle.
  int64_t heard = 0;
  const absl::StatusOr<int64_t> watched =
      LoadTargets(path, *manifest, readers.Targets(0), [&](int64_t bytes) {
        heard += bytes;
        return absl::OkStatus();
      });
  ASSERT_TRUE(watched.ok());
  EXPECT_EQ(heard, *watched);
  int chunks = 0;
  const absl::Status ended =
      LoadTargets(path, *manifest, readers.Targets(0), [&](int64_t) {
        return ++chunks < 3 ? absl::OkStatus() : absl::AbortedError("enough");
      }).status();
  EXPECT_TRUE(absl::IsAborted(ended)) << ended;
  EXPECT_EQ(chunks, 3);
  // A flipped bit in the last chunk of the embedding is nothing to those who do not read it.
  const std::string shard = path + "/" + manifest->shards[0].file;
  std::string bytes = ReadFile(shard);
  const StoredPiece& piece = manifest->tensors[0].pieces[0];
  bytes[static_cast<size_t>(piece.offset + piece.bytes() - 1)] ^= 1;
  root.Write("step-00000001-epoch-1/" + manifest->shards[0].file, bytes);
  EXPECT_TRUE(LoadTargets(path, *manifest, readers.Targets(0)).ok());
  const absl::Status damaged = LoadTargets(path, *manifest, readers.Targets(2)).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged));
  EXPECT_THAT(std::string(damaged.message()),
              testing::AllOf(HasSubstr(shard), HasSubstr("model.embed_tokens.weight")));
  EXPECT_TRUE(absl::IsDataLoss(VerifyFiles(path, *manifest)));
}

TEST(LoadTargets, RefusesWhatItCannotFill) {
  const TemporaryDirectory root;
  const auto files = MakePosixFileSystem();
  const v1::JobSpec job = SmallJob(v1::ARCHITECTURE_GPT2, true);
  const Tensors tensors = WholeTensors(TrainingTensorsOf(BuildInventory(ShapeOf(job.model()))));
  const CheckpointInfo info = TrainingInfoOf(job, 1);
  ASSERT_TRUE(SaveTraining(*files, root.path(), info, TrainingWorld(job, {}, tensors, 0)).ok());
  const std::string path = StepDirectory(root.path(), 1, 1);
  absl::StatusOr<Manifest> manifest = ReadSoundManifest(path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::vector<float> room(100);
  const auto error = [&](const TensorTarget& target) {
    return LoadTargets(path, *manifest, {target}).status().ToString();
  };
  EXPECT_EQ(error({"wte.weight", {11, 8}, {0, 8}, 0, 88, room.data()}), "OK");
  EXPECT_THAT(error({"wte.weight", {12, 8}, {0, 8}, 0, 88, room.data()}),
              HasSubstr("\"wte.weight\" in another shape"));
  EXPECT_THAT(error({"stranger", {8}, {0, 1}, 0, 8, room.data()}),
              HasSubstr("does not hold all tensors"));
  EXPECT_THAT(error({"wte.weight", {11, 8}, {0, 8}, 80, 96, room.data()}),
              HasSubstr("does not hold all tensors"));
  for (StoredTensor& tensor : manifest->tensors) {
    for (StoredPiece& piece : tensor.pieces) piece.xxh3.clear();
  }
  EXPECT_THAT(error({"wte.weight", {11, 8}, {0, 8}, 0, 88, room.data()}),
              HasSubstr("older version"));
}

}  // namespace
}  // namespace sherd
