#include "plan/parameters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace sherd {
namespace {

// The initial standard deviation of both architectures.
constexpr double kStddev = 0.02;

// How the members of a tensor-parallel group share a tensor.
struct Sharing {
  std::vector<ElementRange> rows;
  ElementRange columns;
  int copies = 1;
  bool partial_gradient = false;
};

class UnitBuilder {
 public:
  UnitBuilder(const ModelPart& part, UnitKind kind, std::string name, int64_t layer) : part_(part) {
    unit_.kind = kind;
    unit_.name = std::move(name);
    unit_.layer = layer;
  }

  // Matrices of (rows, columns) that every member has whole, or of which it has ranges of rows, or
  // a range of columns.
  UnitBuilder& Matrix(const std::string& name, int64_t rows, int64_t columns, double stddev) {
    return Append(name, {rows, columns}, Whole(rows, columns), /*decays=*/true, Normal(stddev));
  }
  UnitBuilder& RowSplit(const std::string& name, int64_t rows, int64_t columns,
                        std::vector<ElementRange> ranges, double stddev, int copies = 1) {
    return Append(name, {rows, columns}, {std::move(ranges), {0, columns}, copies, copies > 1},
                  /*decays=*/true, Normal(stddev));
  }
  UnitBuilder& ColumnSplit(const std::string& name, int64_t rows, int64_t columns,
                           ElementRange range, double stddev) {
    return Append(name, {rows, columns}, {{{0, rows}}, range}, /*decays=*/true, Normal(stddev));
  }
  UnitBuilder& Bias(const std::string& name, int64_t size) {
    return Append(name, {size}, Whole(size, 1), /*decays=*/false, Zeros());
  }
  UnitBuilder& SplitBias(const std::string& name, int64_t size, std::vector<ElementRange> ranges) {
    return Append(name, {size}, {std::move(ranges), {0, 1}}, /*decays=*/false, Zeros());
  }
  // A layer norm's weight and bias.
  UnitBuilder& Norm(const std::string& name, int64_t size) {
    return Scale(name, size).Bias(absl::StrCat(name, ".bias"), size);
  }
  // An RMS norm's weight.
  UnitBuilder& Scale(const std::string& name, int64_t size) {
    return Append(absl::StrCat(name, ".weight"), {size}, Whole(size, 1), /*decays=*/false,
                  {Initializer::Kind::kOnes, 0});
  }
  Unit Build() { return std::move(unit_); }

 private:
  static Initializer Normal(double stddev) { return {Initializer::Kind::kNormal, stddev}; }
  static Initializer Zeros() { return {Initializer::Kind::kZeros, 0}; }

  // What every member has whole is applied to the residual stream, of which each may hold a part.
  Sharing Whole(int64_t rows, int64_t columns) const {
    return {{{0, rows}}, {0, columns}, part_.place.degree, part_.place.sequence};
  }

  UnitBuilder& Append(const std::string& name, std::vector<int64_t> shape, Sharing sharing,
                      bool decays, Initializer init) {
    Parameter parameter;
    parameter.name = name;
    int64_t rows = 0;
    for (const ElementRange& range : sharing.rows) rows += range.size();
    parameter.elements = rows * sharing.columns.size();
    parameter.shape = {rows};
    if (shape.size() > 1) parameter.shape.push_back(sharing.columns.size());
    parameter.slice = {std::move(shape), std::move(sharing.rows), sharing.columns};
    parameter.copies = sharing.copies;
    parameter.partial_gradient = sharing.partial_gradient;
    parameter.offset = unit_.elements;
    parameter.decays = decays;
    parameter.init = init;
    unit_.elements += parameter.elements;
    unit_.parameters.push_back(std::move(parameter));
    return *this;
  }

  const ModelPart& part_;
  Unit unit_;
};

// Projections back into the residual stream start smaller, by the square root of their number
// (Radford et al. 2019, section 2.3).
double ResidualStddev(const ModelShape& shape) {
  return kStddev / std::sqrt(2.0 * static_cast<double>(shape.layers));
}

// The member's rows of the token embedding and the head, padding included.
ElementRange VocabularyRows(const ModelPart& part) {
  const int64_t begin = part.place.index * part.vocab;
  return {begin, begin + part.vocab};
}

// The channels of its query heads, and of its heads of keys and values.
ElementRange HeadChannels(const ModelPart& part) {
  const int64_t begin = part.first_head * part.head_size;
  return {begin, begin + part.attention_channels()};
}
ElementRange KvChannels(const ModelPart& part) {
  const int64_t begin = part.first_kv_head * part.head_size;
  return {begin, begin + part.kv_heads * part.head_size};
}

ElementRange FfnChannels(const ModelPart& part) {
  const int64_t begin = part.place.index * part.ffn;
  return {begin, begin + part.ffn};
}

Unit Gpt2Embedding(const ModelShape& shape, const ModelPart& part) {
  return UnitBuilder(part, UnitKind::kEmbedding, "embedding", -1)
      .RowSplit("wte.weight", shape.vocab, shape.hidden, {VocabularyRows(part)}, kStddev)
      .Matrix("wpe.weight", shape.context, shape.hidden, kStddev)
      .Build();
}

// Queries, keys and values are one published tensor of three times as many rows as channels.
std::vector<ElementRange> Gpt2QkvRows(const ModelShape& shape, const ModelPart& part) {
  if (part.place.degree == 1) return {{0, 3 * shape.hidden}};
  std::vector<ElementRange> rows;
  for (int64_t third = 0; third < 3; ++third) {
    const ElementRange channels = HeadChannels(part);
    rows.push_back({third * shape.hidden + channels.begin, third * shape.hidden + channels.end});
  }
  return rows;
}

Unit Gpt2Block(const ModelShape& shape, const ModelPart& part, int64_t layer) {
  const std::string prefix = absl::StrCat("h.", layer);
  const int64_t hidden = shape.hidden;
  const double residual = ResidualStddev(shape);
  const std::vector<ElementRange> qkv = Gpt2QkvRows(shape, part);
  return UnitBuilder(part, UnitKind::kBlock, prefix, layer)
      .Norm(prefix + ".ln_1", hidden)
      .RowSplit(prefix + ".attn.c_attn.weight", 3 * hidden, hidden, qkv, kStddev)
      .SplitBias(prefix + ".attn.c_attn.bias", 3 * hidden, qkv)
      .ColumnSplit(prefix + ".attn.c_proj.weight", hidden, hidden, HeadChannels(part), residual)
      .Bias(prefix + ".attn.c_proj.bias", hidden)
      .Norm(prefix + ".ln_2", hidden)
      .RowSplit(prefix + ".mlp.c_fc.weight", shape.ffn, hidden, {FfnChannels(part)}, kStddev)
      .SplitBias(prefix + ".mlp.c_fc.bias", shape.ffn, {FfnChannels(part)})
      .ColumnSplit(prefix + ".mlp.c_proj.weight", hidden, shape.ffn, FfnChannels(part), residual)
      .Bias(prefix + ".mlp.c_proj.bias", hidden)
      .Build();
}

Unit LlamaEmbedding(const ModelShape& shape, const ModelPart& part) {
  return UnitBuilder(part, UnitKind::kEmbedding, "embedding", -1)
      .RowSplit("model.embed_tokens.weight", shape.vocab, shape.hidden, {VocabularyRows(part)},
                kStddev)
      .Build();
}

// q, k and v lie one behind the other, and so do gate and up: what reads the same input is one
// matrix to the model, which multiplies by it once.
Unit LlamaBlock(const ModelShape& shape, const ModelPart& part, int64_t layer) {
  const std::string prefix = absl::StrCat("model.layers.", layer);
  const int64_t hidden = shape.hidden;
  const int64_t kv_channels = shape.kv_heads * shape.head_size();
  const std::vector<ElementRange> kv = {KvChannels(part)};
  const std::vector<ElementRange> ffn = {FfnChannels(part)};
  const double residual = ResidualStddev(shape);
  return UnitBuilder(part, UnitKind::kBlock, prefix, layer)
      .Scale(prefix + ".input_layernorm", hidden)
      .RowSplit(prefix + ".self_attn.q_proj.weight", hidden, hidden, {HeadChannels(part)}, kStddev)
      .RowSplit(prefix + ".self_attn.k_proj.weight", kv_channels, hidden, kv, kStddev,
                part.kv_copies)
      .RowSplit(prefix + ".self_attn.v_proj.weight", kv_channels, hidden, kv, kStddev,
                part.kv_copies)
      .ColumnSplit(prefix + ".self_attn.o_proj.weight", hidden, hidden, HeadChannels(part),
                   residual)
      .Scale(prefix + ".post_attention_layernorm", hidden)
      .RowSplit(prefix + ".mlp.gate_proj.weight", shape.ffn, hidden, ffn, kStddev)
      .RowSplit(prefix + ".mlp.up_proj.weight", shape.ffn, hidden, ffn, kStddev)
      .ColumnSplit(prefix + ".mlp.down_proj.weight", hidden, shape.ffn, FfnChannels(part), residual)
      .Build();
}

Unit BuildHead(const ModelShape& shape, const ModelPart& part) {
  UnitBuilder head(part, UnitKind::kHead, "head", -1);
  if (shape.arch == Architecture::kLlama) {
    head.Scale("model.norm", shape.hidden);
  } else {
    head.Norm("ln_f", shape.hidden);
  }
  if (!shape.tie_embeddings) {
    head.RowSplit("lm_head.weight", shape.vocab, shape.hidden, {VocabularyRows(part)}, kStddev);
  }
  return head.Build();
}

}  // namespace

Inventory BuildInventory(const ModelShape& shape, const TensorPlace& place) {
  const bool llama = shape.arch == Architecture::kLlama;
  Inventory inventory;
  inventory.tied = shape.tie_embeddings;
  inventory.part = PartOf(shape, place);
  const ModelPart& part = inventory.part;
  inventory.units.push_back(llama ? LlamaEmbedding(shape, part) : Gpt2Embedding(shape, part));
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    inventory.units.push_back(llama ? LlamaBlock(shape, part, layer)
                                    : Gpt2Block(shape, part, layer));
  }
  inventory.units.push_back(BuildHead(shape, part));
  for (const Unit& unit : inventory.units) inventory.elements += unit.elements;
  return inventory;
}

std::vector<SliceRun> RunsOf(const Parameter& parameter, int64_t begin, int64_t end) {
  SHERD_CHECK(0 <= begin && begin <= end && end <= parameter.elements);
  const TensorSlice& slice = parameter.slice;
  const int64_t width = slice.columns.size();
  std::vector<SliceRun> runs;
  // The stored rows before those of the range at hand.
  int64_t rows_before = 0;
  for (const ElementRange& rows : slice.rows) {
    const int64_t present = std::min(rows.end, slice.tensor_rows()) - rows.begin;
    const int64_t from = std::max(begin, rows_before * width);
    const int64_t to = std::min(end, (rows_before + present) * width);
    if (from < to) {
      runs.push_back(
          {from, to - from, slice.columns, rows.begin * width + (from - rows_before * width)});
    }
    rows_before += rows.size();
  }
  return runs;
}

}  // namespace sherd
