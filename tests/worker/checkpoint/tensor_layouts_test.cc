#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/status_macros.h"
#include "plan/gradient_shares.h"
#include "plan/shard_layout.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/checkpoint/checkpoint_harness.h"
#include "tests/worker/checkpoint/whole_tensors.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/safetensors.h"

namespace sherd {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A model whose heads and ffn divide by four and whose vocabulary mostly does not.
ModelShape RandomShape(std::mt19937_64& random) {
  ModelShape shape;
  shape.arch = random() % 2 == 0 ? Architecture::kGpt2 : Architecture::kLlama;
  shape.layers = 1 + static_cast<int64_t>(random() % 2);
  shape.heads = 4;
  shape.hidden = 4 * (2 + 2 * static_cast<int64_t>(random() % 4));
  shape.kv_heads = shape.arch == Architecture::kGpt2 ? 4 : int64_t{1} << (random() % 3);
  shape.ffn = 4 * (1 + static_cast<int64_t>(random() % 9));
  shape.vocab = 1 + static_cast<int64_t>(random() % 40);
  shape.context = 1 + static_cast<int64_t>(random() % 7);
  shape.tie_embeddings = random() % 2 == 0;
  return shape;
}

// All that the ranks of a world of `tensor` times `data` do to leave a checkpoint.
absl::Status SaveTensorParallel(const std::string& directory, const ModelShape& shape,
                                const Tensors& tensors, int tensor, int data) {
  FaultyFileSystem files;
  const CheckpointInfo info{"job", 1, 1, shape, "bytes"};
  SHERD_RETURN_IF_ERROR(PrepareStaging(files, directory, info));
  std::vector<ShardFileInfo> shards;
  for (int rank = 0; rank < tensor * data; ++rank) {
    const TensorPlace place{tensor, rank % tensor};
    const Inventory inventory = BuildInventory(shape, place);
    std::vector<std::vector<float>> units;
    std::vector<TensorRange> ranges;
    for (const Unit& unit : inventory.units) {
      units.push_back(FlatBuffer(unit, tensors, 0));
      const ElementRange shard = LayoutUnit(unit.elements, data).Filled(rank / tensor);
      for (const ElementRange& counted : FirstHeld(unit, shard, place.index)) {
        AppendRanges(unit, counted, units.back().data() + counted.begin, ranges);
      }
    }
    SHERD_ASSIGN_OR_RETURN(
        shards.emplace_back(),
        WriteShard(files, StagingDirectory(directory, info), rank, tensor * data, ranges));
  }
  return PublishCheckpoint(files, directory, info, WeightsOf(BuildInventory(shape)), shards);
}

absl::StatusOr<Tensors> LoadAll(const std::string& directory) {
  SHERD_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory));
  Tensors tensors;
  SHERD_RETURN_IF_ERROR(LoadTensors(directory, manifest, [&](const StoredTensor& tensor) {
    std::vector<float>& values = tensors[tensor.name];
    values.assign(static_cast<size_t>(tensor.elements), -1.0f);
    return values.data();
  }));
  return tensors;
}

// F14, F41: rows, columns, groups of rows and copies come together again.
TEST(TensorLayouts, WhatAnyDegreesWroteIsReadWhole) {
  const TemporaryDirectory root;
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 6; ++trial) {
    const ModelShape shape = RandomShape(random);
    const Tensors tensors = WholeTensors(WeightsOf(BuildInventory(shape)));
    for (const int tensor : {1, 2, 4}) {
      for (const int data : {1, 2, 3}) {
        const std::string directory = root / "w";
        const absl::Status saved = SaveTensorParallel(directory, shape, tensors, tensor, data);
        ASSERT_TRUE(saved.ok()) << saved;
        const absl::StatusOr<Tensors> loaded = LoadAll(directory);
        ASSERT_TRUE(loaded.ok()) << loaded.status();
        EXPECT_EQ(*loaded, tensors) << "trial " << trial << ": " << tensor << " x " << data;
      }
    }
  }
}

// A block of columns wider than what is read at one time.
TEST(TensorLayouts, LongBlocksAreReadInPieces) {
  const TemporaryDirectory root;
  ModelShape shape;
  shape.layers = 1;
  shape.heads = shape.kv_heads = 2;
  shape.hidden = 384;
  shape.ffn = 1538;
  shape.vocab = 3;
  shape.context = 2;
  const Tensors tensors = WholeTensors(WeightsOf(BuildInventory(shape)));
  ASSERT_TRUE(SaveTensorParallel(root / "w", shape, tensors, 2, 1).ok());
  const absl::StatusOr<Tensors> loaded = LoadAll(root / "w");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, tensors);
}

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  const auto header = ReadSafetensorsHeader(path);
  if (!header.ok()) return {header.status().ToString()};
  for (const SafetensorsEntry& entry : header->entries) names.push_back(entry.name);
  return names;
}

TEST(TensorLayouts, NamesSayWhatAMemberHolds) {
  const TemporaryDirectory root;
  ModelShape shape;
  shape.layers = 1;
  shape.heads = shape.kv_heads = 2;
  shape.hidden = 4;
  shape.ffn = 6;
  shape.vocab = 3;
  shape.context = 2;
  ASSERT_TRUE(
      SaveTensorParallel(root / "w", shape, WholeTensors(WeightsOf(BuildInventory(shape))), 2, 1)
          .ok());
  const std::vector<std::string> first = NamesIn(root / "w/shard-00001-of-00002.safetensors");
  const std::vector<std::string> second = NamesIn(root / "w/shard-00002-of-00002.safetensors");
  // One piece of each of queries, keys and values; whole blocks of columns; the second of two rows
  // of a vocabulary of three is padding.
  for (const char* name : {"h.0.attn.c_attn.weight[0:8]", "h.0.attn.c_attn.weight[16:24]",
                           "h.0.attn.c_attn.weight[32:40]", "h.0.attn.c_proj.weight[:,0:2]",
                           "h.0.mlp.c_proj.weight[:,0:3]", "wte.weight[0:8]", "h.0.ln_1.weight"}) {
    EXPECT_THAT(first, Contains(name));
  }
  EXPECT_THAT(second, Contains("wte.weight[8:12]"));
  EXPECT_THAT(second, Not(Contains("h.0.ln_1.weight")));
  // Never a piece a row.
  EXPECT_EQ(first.size(), 20u);
}

// What a rank leaves out or writes twice does not become a checkpoint.
TEST(TensorLayouts, AreNotPublishedWithABlockMissingOrTwice) {
  const TemporaryDirectory root;
  const auto files = MakePosixFileSystem();
  ModelShape shape;
  shape.layers = 1;
  shape.heads = shape.kv_heads = 1;
  shape.hidden = 4;
  shape.ffn = 4;
  shape.vocab = shape.context = 1;
  const CheckpointInfo info{"job", 1, 1, shape, "bytes"};
  const std::vector<TensorDescription> expected = {{"t", {2, 5}, 10}};
  const std::vector<float> values(10, 1.0f);
  const auto publish = [&](std::vector<TensorRange> ranges) {
    EXPECT_TRUE(PrepareStaging(*files, root / "w", info).ok());
    const auto shard = WriteShard(*files, StagingDirectory(root / "w", info), 0, 1, ranges);
    EXPECT_TRUE(shard.ok());
    return PublishCheckpoint(*files, root / "w", info, expected, {*shard}).ToString();
  };
  const auto piece = [&](ElementRange columns, int64_t begin, int64_t end) {
    return TensorRange{"t", {2, 5}, columns, begin, end, values.data()};
  };
  EXPECT_EQ(publish({piece({0, 2}, 0, 4), piece({2, 5}, 0, 6)}), "OK");
  EXPECT_THAT(publish({piece({0, 2}, 0, 4)}), HasSubstr("\"t\" missing from column 2"));
  EXPECT_THAT(publish({piece({2, 5}, 0, 6)}), HasSubstr("in columns 2 to 5 after column 0"));
  EXPECT_THAT(publish({piece({0, 2}, 0, 4), piece({3, 5}, 0, 4)}), HasSubstr("after column 2"));
  EXPECT_THAT(publish({piece({0, 3}, 0, 6), piece({2, 5}, 0, 6)}), HasSubstr("after column 3"));
  EXPECT_THAT(publish({piece({0, 2}, 0, 3), piece({2, 5}, 0, 6)}),
              HasSubstr("missing from 3 on of columns 0 to 2"));
  EXPECT_THAT(publish({piece({0, 2}, 0, 3), piece({0, 2}, 2, 4), piece({2, 5}, 0, 6)}),
              HasSubstr("missing or twice at 3 of columns 0 to 2"));
  EXPECT_THAT(publish({piece({0, 2}, 0, 4), piece({2, 6}, 0, 8)}), HasSubstr("wrong size"));
  EXPECT_THAT(publish({piece({0, 2}, 0, 5), piece({2, 5}, 0, 6)}), HasSubstr("wrong size"));
}

}  // namespace
}  // namespace sherd
