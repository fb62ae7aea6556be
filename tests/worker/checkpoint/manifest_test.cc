#include "worker/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/worker/checkpoint/checkpoint_harness.h"
#include "worker/checkpoint/piece_name.h"

namespace sherd {
namespace {

using testing::HasSubstr;

Manifest LlamaManifest() {
  Manifest manifest = SmallManifest();
  ModelShape& model = manifest.info.model;
  model.arch = Architecture::kLlama;
  model.hidden = 24;
  model.heads = 4;
  model.kv_heads = 2;
  model.norm_eps = 1e-6;
  model.rotary = {.theta = 123456.7,
                  .factor = 32,
                  .low_freq_factor = 1.5,
                  .high_freq_factor = 4,
                  .original_context = 8192};
  return manifest;
}

TEST(Manifest, KeepsEveryFieldOfALlama) {
  const Manifest manifest = LlamaManifest();
  const absl::StatusOr<Manifest> back = ParseManifest(FormatManifest(manifest));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->info.model == manifest.info.model);
}

TEST(Manifest, RefusesALlamaThatCannotBe) {
  const auto error = [](const auto& change) {
    Manifest manifest = LlamaManifest();
    change(manifest.info.model);
    return ParseManifest(FormatManifest(manifest)).status().ToString();
  };
  EXPECT_THAT(error([](ModelShape& m) { m.kv_heads = 3; }), HasSubstr("heads"));
  EXPECT_THAT(error([](ModelShape& m) { m.heads = m.kv_heads = 8; }), HasSubstr("heads"));
  EXPECT_THAT(error([](ModelShape& m) { m.norm_eps = 0; }), HasSubstr("norm"));
  EXPECT_THAT(error([](ModelShape& m) { m.rotary.theta = -1; }), HasSubstr("rotary"));
  EXPECT_THAT(error([](ModelShape& m) { m.rotary.factor = 0.5; }), HasSubstr("rotary"));
  EXPECT_THAT(error([](ModelShape& m) { m.rotary.low_freq_factor = 4; }), HasSubstr("rotary"));
  EXPECT_THAT(error([](ModelShape& m) { m.rotary.original_context = 0; }), HasSubstr("rotary"));
}

// Behind a right checksum, too, nothing is believed.
TEST(Manifest, ChecksWhatItsChecksumDoesNot) {
  const auto error = [](const auto& change) {
    Manifest manifest = SmallManifest();
    change(manifest);
    return ParseManifest(FormatManifest(manifest)).status().ToString();
  };
  EXPECT_EQ(error([](Manifest&) {}), "OK");
  EXPECT_THAT(error([](Manifest& m) { m.shards[0].file = "../shard"; }), HasSubstr("outside"));
  EXPECT_THAT(error([](Manifest& m) { m.shards[0].file = "/etc/passwd"; }), HasSubstr("outside"));
  EXPECT_THAT(error([](Manifest& m) { m.shards[0].bytes = 303; }), HasSubstr("past the end"));
  EXPECT_THAT(error([](Manifest& m) { m.shards[0].bytes = -1; }), HasSubstr("bytes"));
  EXPECT_THAT(error([](Manifest& m) { m.tensors[0].pieces[1].begin = 3; }), HasSubstr("\"a\""));
  EXPECT_THAT(error([](Manifest& m) { m.tensors[0].pieces.pop_back(); }), HasSubstr("missing"));
  EXPECT_THAT(error([](Manifest& m) { m.tensors[0].pieces[0].shard = 1; }), HasSubstr("\"a\""));
  EXPECT_THAT(error([](Manifest& m) { m.tensors[0].pieces[0].offset = 1 << 20; }),
              HasSubstr("past the end"));
  EXPECT_THAT(error([](Manifest& m) { m.tensors[1].shape = {int64_t{1} << 62}; }),
              HasSubstr("impossible shape"));
  EXPECT_THAT(error([](Manifest& m) { m.tensors[1].dtype = "F8"; }), HasSubstr("F8"));
  EXPECT_THAT(error([](Manifest& m) { m.info.model.layers = 0; }), HasSubstr("impossible"));
  EXPECT_THAT(error([](Manifest& m) { m.info.model.heads = 2; }), HasSubstr("heads"));
  EXPECT_THAT(error([](Manifest& m) { m.info.model.kv_heads = 2; }), HasSubstr("heads"));
  EXPECT_THAT(error([](Manifest& m) { m.tensors.resize(200, m.tensors[0]); }), HasSubstr("room"));
}

TEST(Manifest, ChecksThatBlocksOfColumnsTileATensor) {
  const auto error = [](const auto& change) {
    Manifest manifest = SmallManifest();
    change(manifest.tensors[2].pieces);
    return ParseManifest(FormatManifest(manifest)).status().ToString();
  };
  using Pieces = std::vector<StoredPiece>;
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const auto third = [&](ElementRange columns) {
    return error([&](Pieces& pieces) { pieces[2].columns = columns; });
  };
  EXPECT_THAT(third({1, 5}), HasSubstr("\"c\" missing or twice in columns 1 to 5 after column 2"));
  EXPECT_THAT(third({3, 5}), HasSubstr("after column 2"));
  EXPECT_THAT(third({2, 4}), HasSubstr("missing or twice at 0 of columns 2 to 4"));
  EXPECT_THAT(third({2, 6}), HasSubstr("columns 2 to 6"));
  EXPECT_THAT(third({2, kHuge}), HasSubstr("after column 2"));
  EXPECT_THAT(third({2, 2}), HasSubstr("after column 2"));
  EXPECT_THAT(third({5, 2}), HasSubstr("after column 2"));
  EXPECT_THAT(third({2, -1}), HasSubstr("columns"));
  // As the block before: its elements a second time.
  EXPECT_THAT(third({0, 2}), HasSubstr("missing or twice at 4 of columns 0 to 2"));
  EXPECT_THAT(error([](Pieces& pieces) { pieces.pop_back(); }), HasSubstr("from column 2 on"));
  EXPECT_THAT(error([](Pieces& pieces) { pieces.clear(); }), HasSubstr("from column 0 on"));
  EXPECT_THAT(error([](Pieces& pieces) { pieces[2].end = 7; }), HasSubstr("missing or twice at 0"));
  EXPECT_THAT(error([](Pieces& pieces) { pieces[2].end = kHuge; }), HasSubstr("twice at 0"));
  EXPECT_THAT(error([](Pieces& pieces) { pieces[0].columns = {0, 0}; }), HasSubstr("\"c\""));
}

// As the versions before this one wrote it.
constexpr char kVersionOne[] =
    R"({"checkpoint": {"epoch": 1, "format": "sherd-checkpoint", "job": "job",
        "model": {"arch": "gpt2", "context": 2, "ffn": 5, "heads": 1, "hidden": 3, "kv_heads": 1,
                  "layers": 1, "tie_embeddings": true, "vocab": 7},
        "shards": [{"bytes": 1000, "file": "shard-00001-of-00001.safetensors",
                    "xxh3": "0000000000000011"}],
        "step": 1,
        "tensors": [{"dtype": "F32", "name": "a",
                     "pieces": [{"begin": 0, "end": 4, "offset": 100, "shard": 0},
                                {"begin": 4, "end": 6, "offset": 200, "shard": 0}],
                     "shape": [2, 3]}],
        "tokenizer": "bytes", "version": 1}, "xxh3": "322704f80aa579c9"})";

TEST(Manifest, ReadsPiecesThatNameNoColumns) {
  const absl::StatusOr<Manifest> manifest = ParseManifest(kVersionOne);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_EQ(manifest->tensors.size(), 1u);
  ASSERT_EQ(manifest->tensors[0].pieces.size(), 2u);
  EXPECT_EQ(manifest->tensors[0].pieces[1].columns, (ElementRange{0, 3}));
  EXPECT_EQ(manifest->tensors[0].pieces[1].begin, 4);
  EXPECT_EQ(manifest->tensors[0].pieces[1].offset, 200);
}

TEST(PieceName, ReadsBackWhatItWrites) {
  const PieceName names[] = {{"a.b", std::nullopt, std::nullopt},
                             {"a", std::nullopt, ElementRange{3, 9}},
                             {"a", ElementRange{0, 4}, std::nullopt},
                             {"a", ElementRange{4, 8}, ElementRange{12, 345}}};
  for (const PieceName& name : names) {
    const std::string text = FormatPieceName(name);
    const PieceName back = ParsePieceName(text);
    EXPECT_EQ(back.tensor, name.tensor) << text;
    EXPECT_EQ(back.columns, name.columns) << text;
    EXPECT_EQ(back.elements, name.elements) << text;
  }
  EXPECT_EQ(FormatPieceName(names[3]), "a[:,4:8][12:345]");
}

TEST(PieceName, TakesAnythingElseForATensor) {
  for (const char* text :
       {"", "]", "[", "[]", "a[", "a]", "a[1]", "a[:]", "a[1:]", "a[ 1:2]", "a[01:2]", "a[+1:2]",
        "a[1:99999999999999999999]", "a[:,1]", "a[1:2] "}) {
    EXPECT_EQ(ParsePieceName(text).tensor, text);
  }
}

}  // namespace
}  // namespace sherd
